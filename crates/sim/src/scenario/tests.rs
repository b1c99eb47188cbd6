//! Scenario files: what they say, and what is said of them when they are wrong.
