//! The external providers of a process (IO). They are read again while one of them is refused.

use std::path::{Path, PathBuf};

use super::View;
use crate::{apply::inventory, provider::OpenShift};

impl View {
    /// The files of the external providers.
    pub(in crate::controllers) fn provider_paths(&self) -> impl Iterator<Item = PathBuf> {
        self.externals.paths().map(Path::to_owned)
    }

    /// Reads the external providers that were refused once more; returns whether that has changed anything. Those that are used stay
    /// as they were checked.
    pub(in crate::controllers) fn retry_providers(&mut self) -> bool {
        let has_changed = self.externals.retry();
        if has_changed {
            self.catalog = self.externals.catalog();
            self.catalog_changed = true;
            self.revision += 1;
            self.follow();
        }
        has_changed
    }

    /// Whether the catalog has changed since the last call.
    pub(in crate::controllers) fn take_catalog_change(&mut self) -> bool {
        std::mem::take(&mut self.catalog_changed)
    }

    /// The external provider that serves the cluster.
    pub(in crate::controllers) fn external_provider(&self) -> Option<&str> {
        self.provider().filter(|provider| provider.origin.is_some()).map(OpenShift::name)
    }

    /// The external provider that the applied objects are of, if it does not serve the cluster any more.
    pub(in crate::controllers) fn gone_provider(&self) -> Option<String> {
        let applied = inventory::external_provider(self.target.observer.inventory())?;
        // Then nobody knows which one should serve the cluster.
        if !self.catalog.refused().is_empty() || !matches!(self.facts().map(|facts| &facts.platform), Ok(Ok(Some(_)))) {
            return None;
        }
        (self.external_provider() != Some(applied)).then(|| applied.to_owned())
    }
}

/// Why nothing is done while the provider of the objects is not given, and what to do, for people.
pub(in crate::controllers) fn not_given(name: &str) -> String {
    format!(
        "the objects in this cluster are of the external provider {name:?}, which is not given: nothing is changed or deleted; give it \
         again, or give --remove-provider {name} to delete them"
    )
}
