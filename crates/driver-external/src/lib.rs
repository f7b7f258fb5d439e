//! Drivers of clouds that are programs of their own, in any language.

#![forbid(unsafe_code)]
