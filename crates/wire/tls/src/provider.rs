//! Cryptography: `ring`.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    // The first that the server knows is used. AES with 128 bits is a third faster than with 256 where processors have
    // instructions for it; without them, ChaCha20 is several times as fast as either.
    let (short, long, chacha) = (TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256);
    let cipher_suites = if has_aes() { vec![short, long, chacha] } else { vec![chacha, short, long] };
    Arc::new(CryptoProvider { cipher_suites, ..rustls::crypto::ring::default_provider() })
});

/// The algorithms that connections negotiate.
pub(crate) fn provider() -> &'static Arc<CryptoProvider> {
    &PROVIDER
}

/// Whether this machine's processors have instructions for AES.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// The methods of rustls's verifiers, of either side, for signatures: those of TLS 1.3 only.
macro_rules! tls13_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &rustls::pki_types::CertificateDer<'_>,
            _signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("TLS 1.2 is not accepted".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = &$crate::provider::provider().signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            $crate::provider::provider().signature_verification_algorithms.supported_schemes()
        }
    };
}
pub(crate) use tls13_signatures;
