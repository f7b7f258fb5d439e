//! A cloud in a process or in a file, and its driver.

#![forbid(unsafe_code)]
