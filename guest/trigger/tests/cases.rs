//! Runs the cases of the guest natively. Never a component: `transom test` does that.

#[test]
fn cases() -> Result<(), transom_guest::testing::Failed> {
    transom_guest::testing::trigger::<transom_trigger::Trigger>("cases")
}
