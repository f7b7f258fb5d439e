//! The layer around each driver.
