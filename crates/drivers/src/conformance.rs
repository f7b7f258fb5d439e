//! The checks that each driver has to pass.
