//! The one table of drivers for all programs, and what chooses and configures one.

#![forbid(unsafe_code)]
