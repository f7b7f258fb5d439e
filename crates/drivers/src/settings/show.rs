//! Prints the declarations of settings (pure).
