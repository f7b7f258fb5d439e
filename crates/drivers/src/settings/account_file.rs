//! A file of accounts (pure).
