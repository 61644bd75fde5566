//! Cryptography: `ring`.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

/// The algorithms that connections negotiate.
pub(crate) fn provider() -> &'static Arc<CryptoProvider> {
    &PROVIDER
}
