//! aws (pure). To be written.

use super::{Context, Error, Output};

pub(super) fn transform(source: &str, _context: &Context) -> Result<Output, Error> {
    Ok(Output { text: source.to_owned(), ..Output::default() })
}
