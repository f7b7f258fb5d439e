//! The cloud of the end-to-end tests.

use anyhow::Result;
use tokio::sync::OnceCell;

use crate::support::moto::Cloud;

/// Where moto listens: the address that `hack/e2e/inside.sh` makes, and that the test image of the CCM names.
const ADDRESS: (&str, u16) = ("192.0.2.1", 5000);

/// The cloud, started by the first call; it ends with the namespaces, as a static is never dropped.
pub(crate) async fn get() -> Result<&'static Cloud> {
    static CLOUD: OnceCell<Cloud> = OnceCell::const_new();
    CLOUD.get_or_try_init(|| Cloud::start(ADDRESS.0, ADDRESS.1)).await
}
