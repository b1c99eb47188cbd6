//! The page.
use super::Report;
pub(super) fn html(_report: &Report) -> String {
    String::from("<!doctype html>")
}
