//! A cloud-controller-manager for every cloud that has a driver.

#![forbid(unsafe_code)]
