//! Runs a guest natively on folders of cases.
