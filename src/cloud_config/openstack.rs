//! openstack (pure). To be written.

use super::{Error, Output};

pub(super) fn transform(source: &str) -> Result<Output, Error> {
    Ok(Output { text: source.to_owned(), ..Output::default() })
}
