//! `ccm-operator render` on files.
