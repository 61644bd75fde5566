//! Login (RFC 7143, section 6.3): authentication, then session parameters. No I/O.

mod chap;
mod discovery;
mod keys;

use bytes::BytesMut;

pub use self::discovery::{Discovery, TARGETS_MAX};
use self::keys::Negotiation;
pub use self::keys::SEGMENT_LEN_MAX;
use self::keys::shown;
use crate::options::LoginKeys;
use crate::pdu::request::{Numbers, Stage};
use crate::pdu::{Digests, Response, Sequence, Violation, frame, request, text};
use crate::uri::Credentials;

/// The maximum number of PDUs a target may send during a login.
const ROUNDS_MAX: u32 = 32;
/// The longest data segment in a login, in bytes; RFC 7143, 13.12, says 8192.
const LOGIN_SEGMENT_LEN_MAX: usize = text::TEXT_LEN_MAX;
/// The login's task tag.
const ITT: u32 = 0;

/// Parameters of a login.
#[derive(Debug, Clone)]
pub struct LoginParameters {
    /// The initiator's name.
    pub initiator: String,
    /// The target to read from; `None` for discovery.
    pub target: Option<String>,
    /// Credentials for targets that require them.
    pub credentials: Option<Credentials>,
    /// The initiator's part of the session identifier. The target ends an older session with the same one, which a lost
    /// connection may have left.
    pub isid: [u8; 6],
    /// The keys to offer.
    pub keys: LoginKeys,
}

/// The result of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiatedLogin {
    /// The digests on all following PDUs.
    pub digests: Digests,
    /// The negotiated keys.
    pub keys: LoginKeys,
    /// The next command number, and the next expected status number.
    pub numbers: Numbers,
    /// The target's latest command window.
    pub sequence: Sequence,
}

/// The caller's next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send `out`, receive more, and call again.
    Read,
    /// Send `out`; the login is complete.
    Done(NegotiatedLogin),
}

/// The reason a login failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The target refuses.
    #[error("the target refuses the login: {0}")]
    Refused(String),
    /// The target redirects to another address.
    #[error("the target has moved to {0}; give that address instead")]
    Moved(String),
    /// The target requires authentication, and the URI has no credentials.
    #[error("the target asks for a user and a password; write iscsi://user%password@host/target/lun")]
    CredentialsMissing,
    /// The target requires an unsupported feature.
    #[error("the target insists on {0}, which is not supported")]
    Unsupported(String),
    /// The target violates the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The target closed the connection.
    #[error("the target closed the connection during the login")]
    Closed,
}

/// State of the security stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Security {
    /// Methods were offered.
    Offered,
    /// CHAP was chosen, and an algorithm offered.
    Chap,
    /// Our response has been sent.
    Answered,
    /// Not required.
    None,
}

/// The initiator's side of a login.
#[derive(Debug)]
pub struct Login {
    parameters: LoginParameters,
    stage: Stage,
    security: Security,
    negotiation: Negotiation,
    offered: bool,
    /// The received part of a text that continues in the next PDU.
    text: BytesMut,
    exp_stat_sn: u32,
    rounds: u32,
}

impl Login {
    /// Appends the first request to `out`.
    pub fn start(parameters: LoginParameters, out: &mut BytesMut) -> Self {
        let negotiation = Negotiation::new(parameters.target.as_ref().map(|_| &parameters.keys));
        let mut login = Self {
            parameters,
            stage: Stage::Security,
            security: Security::Offered,
            negotiation,
            offered: false,
            text: BytesMut::new(),
            exp_stat_sn: 0,
            rounds: 0,
        };
        let mut keys = BytesMut::new();
        text::put(&mut keys, "InitiatorName", &login.parameters.initiator);
        match &login.parameters.target {
            Some(target) => {
                text::put(&mut keys, "SessionType", "Normal");
                text::put(&mut keys, "TargetName", target);
            }
            None => text::put(&mut keys, "SessionType", "Discovery"),
        }
        let chap = login.parameters.credentials.is_some();
        text::put(&mut keys, "AuthMethod", if chap { "CHAP,None" } else { "None" });
        // Without credentials the security stage can end at once.
        let next = if chap { None } else { Some(Stage::Operational) };
        login.send(next, &keys, out);
        login
    }

    fn send(&mut self, next: Option<Stage>, keys: &[u8], out: &mut BytesMut) {
        let numbers = Numbers { cmd_sn: 0, exp_stat_sn: self.exp_stat_sn };
        frame::put(out, request::login(self.parameters.isid, ITT, self.stage, next, numbers), keys, Digests::default());
    }

    /// Consumes complete PDUs from `input`, and appends replies to `out`.
    ///
    /// # Errors
    ///
    /// If the login fails.
    pub fn advance(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Step, LoginError> {
        while let Some((header, data)) = frame::take_plain(input, LOGIN_SEGMENT_LEN_MAX)? {
            self.rounds += 1;
            if self.rounds > ROUNDS_MAX {
                return Err(Violation::new("a login that does not end").into());
            }
            let Response::Login { itt, transit, more, stage, next, isid, tsih, class, detail, sequence, .. } =
                Response::parse(&header)?
            else {
                return Err(Violation::new("a PDU that is not an answer to the login").into());
            };
            if class != 0 {
                // A target that requires CHAP answers an offer without it with only this status.
                if (class, detail) == (2, 1) && self.parameters.credentials.is_none() {
                    return Err(LoginError::CredentialsMissing);
                }
                return Err(refusal(class, detail, &data));
            }
            if itt != ITT || isid != self.parameters.isid || Stage::from_bits(stage) != Some(self.stage) {
                return Err(Violation::new("an answer to another login").into());
            }
            self.exp_stat_sn = sequence.stat_sn.wrapping_add(1);
            if self.text.len() + data.len() > text::TEXT_LEN_MAX {
                return Err(Violation::new("a login text without end").into());
            }
            self.text.extend_from_slice(&data);
            if more {
                if transit {
                    return Err(Violation::new("a stage that ends within a text").into());
                }
                self.send(None, &[], out);
                continue;
            }
            let text = self.text.split();
            let mut answers = BytesMut::new();
            self.take_keys(&text, &mut answers)?;
            if transit {
                self.stage = Some(self.following())
                    .filter(|following| *following as u8 == next)
                    .ok_or_else(|| Violation::new("a stage that was not requested"))?;
            }
            if self.stage == Stage::FullFeature {
                if tsih == 0 {
                    return Err(Violation::new("a session without an identifier").into());
                }
                let numbers = Numbers { cmd_sn: 0, exp_stat_sn: self.exp_stat_sn };
                let (digests, keys) = (self.negotiation.digests(), self.negotiation.keys());
                return Ok(Step::Done(NegotiatedLogin { digests, keys, numbers, sequence }));
            }
            if self.stage == Stage::Operational && !std::mem::replace(&mut self.offered, true) {
                self.negotiation.offer(&mut answers);
            }
            self.send((self.security != Security::Chap).then_some(self.following()), &answers, out);
        }
        Ok(Step::Read)
    }

    fn take_keys(&mut self, text: &[u8], answers: &mut BytesMut) -> Result<(), LoginError> {
        let pairs = text::parse(text)?;
        match self.stage {
            Stage::Security => self.take_security(&pairs, answers),
            _ => pairs.iter().try_for_each(|(key, value)| self.negotiation.take(key, value, answers)),
        }
    }

    fn take_security(&mut self, pairs: &[(&str, &str)], answers: &mut BytesMut) -> Result<(), LoginError> {
        let value = |wanted: &str| pairs.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
        match self.security {
            Security::Offered => match (value("AuthMethod"), &self.parameters.credentials) {
                (Some("None"), _) => self.security = Security::None,
                (Some("CHAP"), Some(_)) => {
                    self.security = Security::Chap;
                    text::put(answers, "CHAP_A", chap::MD5);
                }
                (Some("CHAP" | "Reject"), None) => return Err(LoginError::CredentialsMissing),
                (Some(other), _) => return Err(LoginError::Unsupported(format!("AuthMethod={}", shown(other)))),
                // Not answered yet; some targets without authentication never answer it.
                (None, _) => {}
            },
            Security::Chap => {
                if let Some(algorithm) = value("CHAP_A").filter(|algorithm| *algorithm != chap::MD5) {
                    return Err(LoginError::Unsupported(format!("CHAP_A={}", shown(algorithm))));
                }
                let (Some(id), Some(challenge)) = (value("CHAP_I"), value("CHAP_C")) else {
                    return Err(Violation::new("CHAP without a challenge").into());
                };
                let id = id.parse::<u8>().map_err(|_| Violation::new("CHAP with an identifier beyond a byte"))?;
                let challenge = chap::binary(challenge)?;
                let Some(Credentials { user, password: Some(password) }) = &self.parameters.credentials else {
                    return Err(LoginError::CredentialsMissing);
                };
                text::put(answers, "CHAP_N", user);
                text::put(answers, "CHAP_R", &chap::response(id, password.reveal().as_bytes(), &challenge));
                self.security = Security::Answered;
            }
            Security::Answered | Security::None => {}
        }
        Ok(())
    }

    /// The stage after this one.
    fn following(&self) -> Stage {
        if self.stage == Stage::Security { Stage::Operational } else { Stage::FullFeature }
    }
}

/// Status classes and details (RFC 7143, 11.13.5).
fn refusal(class: u8, detail: u8, data: &[u8]) -> LoginError {
    let why = match (class, detail) {
        (1, _) => {
            let pairs = text::parse(data).unwrap_or_default();
            let address = pairs.iter().find(|(key, _)| *key == "TargetAddress").map(|(_, value)| *value);
            return LoginError::Moved(address.map_or("an address that it does not name".into(), shown));
        }
        (2, 1) => "authentication failed; check user and password",
        (2, 2) => "this initiator is not allowed in; check the target's access list, or add ?initiator=NAME to the URI",
        (2, 3) => "it has no target of that name",
        (2, 4) => "the target was removed",
        (2, 5) => "the version is not supported",
        (2, 6) => "too many connections",
        (2, 7) => "a parameter is missing",
        (2, _) => "the target rejects the request",
        (3, 1) => "the service is unavailable for now",
        (3, 2) => "it is out of resources",
        (3, _) => "an error at the target",
        _ => "for a reason unknown to this initiator",
    };
    LoginError::Refused(format!("{why} (status {class:02x}{detail:02x})"))
}

#[cfg(test)]
mod tests;
