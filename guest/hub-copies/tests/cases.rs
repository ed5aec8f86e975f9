//! Runs the cases of the guest natively; `transom test` runs them with the component.

#[test]
fn cases() -> Result<(), transom_guest::testing::Failed> {
    transom_guest::testing::objects::<transom_hub_copies::HubCopies>("cases")
}
