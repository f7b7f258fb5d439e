//! The Helm chart in `charts/` and the kustomize base in `install/`: they install what `render` prints.

mod generate;
mod kustomize;
mod monitoring;
mod template;
mod values;
