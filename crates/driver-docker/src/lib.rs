//! The driver of Docker Engines: instances are containers.

#![forbid(unsafe_code)]
