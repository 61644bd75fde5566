//! Certificates, credentials and lists of revoked certificates, as peers and files present them.

use std::sync::LazyLock;

use cheetah_tls::testing::Room;
use cheetah_tls::{Credential, Fingerprint, Identity, Role, is_name};

use crate::edited;

/// A real certificate, credential and list, and a credential of their room.
struct Samples {
    certificate: Vec<u8>,
    pem: Vec<u8>,
    list: Vec<u8>,
    credential: Credential,
}

static SAMPLES: LazyLock<Samples> = LazyLock::new(|| {
    let room = Room::new();
    let member = room.member("pc7", Role::Node);
    let credential = member.credential();
    let certificate = member.certificate_der();
    Samples { certificate, pem: member.pem().into_bytes(), list: room.revocations(&[&credential]), credential }
});

/// Runs one input: as it is, and as an edit of a real credential.
pub fn run(data: &[u8]) {
    let samples = &*SAMPLES;
    for der in [data.to_vec(), edited(&samples.certificate, data)] {
        if let Ok(identity) = Identity::of_certificate(&der) {
            assert!(is_name(&identity.name));
            assert_eq!(Fingerprint::of_certificate(&der).ok(), Some(identity.key));
        }
    }
    for pem in [data.to_vec(), edited(&samples.pem, data)] {
        if let Ok(credential) = Credential::from_pem(&pem) {
            assert!(credential.identity().is_some());
        }
    }
    // A refused list leaves the list in use unchanged.
    let before = samples.credential.revocations();
    if samples.credential.replace_revocations(&edited(&samples.list, data)).is_err() {
        assert_eq!(samples.credential.revocations(), before);
    }
}
