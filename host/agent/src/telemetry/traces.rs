//! Traces for OpenTelemetry: a span for each reconcile, and below it one for each read, call of a guest and plan that
//! is applied. A span contains no name of an object, no message, and no content.

mod client;

use anyhow::{Context as _, ensure};
use client::Client;
use hyper::Uri;
use opentelemetry::trace::{
    FutureExt as _, Span as _, SpanBuilder, Status, TraceContextExt as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use std::env;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use transom_api::State;
use transom_core::failure::Failure;
use transom_core::outcome::Outcome;
use transom_core::report::Report;
use transom_core::work::WorkItem;
use transom_engine::Receipt;

/// The variables that say where traces go; the first is for traces alone. Without them there are no traces.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const NAME: &str = "transom";

/// The traces of this process, once they are started.
static TRACES: OnceLock<Traces> = OnceLock::new();

struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Starts to send traces, if a variable names an endpoint; the other variables of OpenTelemetry apply, too.
///
/// # Errors
/// When a variable is wrong. The value is not quoted, as it may hold a credential.
pub(crate) fn start(runtime: &Handle) -> anyhow::Result<()> {
    let given = |name| {
        env::var(name)
            .ok()
            .filter(|value| !value.is_empty())
            .map(|value| (name, value))
    };
    let Some((name, endpoint)) = ENDPOINTS.into_iter().find_map(given) else {
        return Ok(());
    };
    let plain = endpoint
        .parse::<Uri>()
        .is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
    ensure!(
        plain,
        "failed to start traces: {name} is not a URL like http://collector:4318; traces are sent over plain HTTP"
    );
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Client::new(runtime.clone()));
    let exporter = exporter.build().context("failed to start traces")?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource())
        .build();
    let tracer = provider.tracer(NAME);
    // A second start in one process (tests) keeps the first.
    let _ = TRACES.set(Traces { provider, tracer });
    Ok(())
}

/// What distinguishes this program from others that send traces.
fn resource() -> Resource {
    let attributes = env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let named = env::var_os("OTEL_SERVICE_NAME").is_some() || attributes.contains("service.name=");
    let resource = Resource::builder();
    let resource = if named {
        resource
    } else {
        resource.with_service_name(NAME)
    };
    resource
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Sends what is left. For the end of the process, while the runtime still works.
pub(crate) fn stop() {
    if let Some(traces) = TRACES.get() {
        // The client has logged why the collector does not take them.
        let _ = traces.provider.shutdown();
    }
}

/// The span of one reconcile; it ends at the latest when this is dropped.
pub(crate) struct Reconcile(Context);

impl Reconcile {
    /// Begins the span.
    pub(crate) fn begin(work: &WorkItem) -> Self {
        let Some(traces) = TRACES.get() else {
            return Self(Context::new());
        };
        let attributes = [
            KeyValue::new("transom.policy", work.key.policy.to_string()),
            KeyValue::new("transom.primary.kind", work.key.primary.kind.clone()),
            KeyValue::new("transom.cause", work.cause.as_str()),
        ];
        let builder = SpanBuilder::from_name("reconcile").with_attributes(attributes);
        Self(Context::new().with_span(builder.start_with_context(&traces.tracer, &Context::new())))
    }

    /// Runs a future as a part of the span.
    pub(crate) async fn follow<T>(&self, part: impl Future<Output = T>) -> T {
        part.with_context(self.0.clone()).await
    }

    /// Ends the span with the result.
    pub(crate) fn end(self, report: &Report) {
        let (span, reason) = (self.0.span(), report.reason.to_string());
        span.set_attribute(KeyValue::new(
            "transom.state",
            format!("{:?}", report.state),
        ));
        span.set_attribute(KeyValue::new("transom.reason", reason.clone()));
        if report.state == State::Failed {
            span.set_status(Status::error(reason));
        }
        span.end();
    }
}

/// Begins a child span of the current reconcile, if there is one.
fn begin(part: SpanBuilder) -> Option<Span> {
    let reconcile = Context::current();
    let traces = TRACES.get().filter(|_| reconcile.has_active_span())?;
    Some(part.start_with_context(&traces.tracer, &reconcile))
}

fn end(span: Option<Span>, failure: Option<String>) {
    let Some(mut span) = span else { return };
    if let Some(reason) = failure {
        span.set_status(Status::error(reason));
    }
    span.end();
}

/// Traces the reading of an object.
pub(crate) async fn gather<T>(
    kind: &str,
    read: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let span = begin(
        SpanBuilder::from_name("gather")
            .with_attributes([KeyValue::new("transom.kind", kind.to_owned())]),
    );
    let read = read.await;
    end(
        span,
        read.as_ref()
            .err()
            .map(|failure| failure.reason.to_string()),
    );
    read
}

/// Traces the steps of a plan.
pub(crate) async fn apply(steps: impl Future<Output = Outcome>) -> Outcome {
    let span = begin(SpanBuilder::from_name("apply"));
    let outcome = steps.await;
    end(
        span,
        outcome
            .failure()
            .map(|(_, failure)| failure.reason.as_str().to_owned()),
    );
    outcome
}

/// Traces a guest call that ended just now.
pub(crate) fn invoked(asked: &'static str, receipt: &Receipt, failure: Option<&'static str>) {
    let began = SystemTime::now() - Duration::from_micros(receipt.micros);
    let call = SpanBuilder::from_name("invoke").with_start_time(began);
    end(
        begin(call.with_attributes([KeyValue::new("transom.call", asked)])),
        failure.map(str::to_owned),
    );
}
