//! The conversion of what an objects guest needs and of what is found for it. Each generation has types of its own for
//! that, because each may add forms and values; this is written once for all of them.

/// Implements `Forms` for a generation, with the types of two generated modules. What follows are the forms that it has
/// beside those of 0.1, and the values that 0.1 does not have.
macro_rules! forms {
    (
        $(#[$doc:meta])*
        $generation:ident: $objects:ident, $inputs:ident;
        |$lift:ident| { $($form:pat => $lifted:expr,)* }
        |$lower:ident| { $($value:pat => $lowered:expr,)* }
    ) => {
        $(#[$doc])*
        pub(in crate::bindings) struct $generation;

        impl Forms for $generation {
            type Input = $inputs::Input;
            type Requirement = $objects::Requirement;

            fn input($lower: &mut Lower, input: &Input) -> $inputs::Input {
                $inputs::Input {
                    role: $lower.text(&input.role),
                    value: match &input.value {
                        InputValue::Absent => $inputs::Value::Absent,
                        InputValue::Present => $inputs::Value::Present,
                        InputValue::Service(service) => {
                            $inputs::Value::Service($lower.service(service))
                        }
                        InputValue::Kubeconfig(view) => {
                            $inputs::Value::Kubeconfig($lower.source(view))
                        }
                        InputValue::Object(fields) => $inputs::Value::Object($lower.json(fields)),
                        InputValue::Fresh(until) => $inputs::Value::Fresh(*until),
                        InputValue::Stale(since) => $inputs::Value::Stale(*since),
                        InputValue::Ahead(until) => $inputs::Value::Ahead(*until),
                        InputValue::Every(members) => {
                            $inputs::Value::Every($lower.list(members, Lower::member))
                        }
                        InputValue::Outcome(last) => $inputs::Value::Outcome($lower.outcome(last)),
                        InputValue::CertificateRequest(request) => {
                            $inputs::Value::CertificateRequest($lower.certificate_request(request))
                        }
                        InputValue::Secret(bytes) => {
                            $inputs::Value::Secret($lower.list(bytes, Lower::secret_bytes))
                        }
                        InputValue::Certificate(content) => {
                            $inputs::Value::Certificate($lower.certificate(content))
                        }
                        InputValue::Allowed => $inputs::Value::Allowed,
                        InputValue::Denied(why) => $inputs::Value::Denied($lower.text(why)),
                        InputValue::Count(number) => $inputs::Value::Count(*number),
                        $($value => $lowered,)*
                    },
                }
            }

            fn requirement(lift: &mut Lift<'_>, required: $objects::Requirement) -> Requirement {
                Requirement {
                    target: None,
                    targets: lift.list(required.targets, Lift::reference),
                    needs: lift.list(required.needs, |$lift, need| Need {
                        role: $lift.text(need.role),
                        reference: $lift.reference(need.reference),
                        form: match need.form {
                            $inputs::Form::Presence => Form::Presence,
                            $inputs::Form::Object => Form::Object,
                            $inputs::Form::Service => Form::Service,
                            $inputs::Form::Kubeconfig(key) => Form::Kubeconfig($lift.text(key)),
                            $inputs::Form::Age(age) => Form::Age($lift.age(age)),
                            $inputs::Form::Every(query) => Form::Every($lift.query(query)),
                            $inputs::Form::Outcome => Form::Outcome,
                            $inputs::Form::CertificateRequest => Form::CertificateRequest,
                            $inputs::Form::Secret(keys) => Form::Secret($lift.list(keys, Lift::text)),
                            $inputs::Form::Certificate(keys) => {
                                Form::Certificate($lift.certificate_keys(keys))
                            }
                            $inputs::Form::Access(review) => Form::Access($lift.review(review)),
                            $inputs::Form::Count(labels) => {
                                Form::Count($lift.list(labels, Lift::label_term))
                            }
                            $($form => $lifted,)*
                        },
                        absence: $lift.absence(need.absence),
                        wake: $lift.wake(need.wake),
                    }),
                }
            }
        }
    };
}
