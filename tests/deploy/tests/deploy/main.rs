//! What operators apply. Each module covers one question; those that need a cluster start a real one.

#![expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]

mod applied;
mod change;
mod chart;
mod components;
mod deployed;
mod finalizers;
mod limits;
mod monitoring;
mod own_guest;
mod own_policies;
mod pages;
mod signed;
mod taking_over;
