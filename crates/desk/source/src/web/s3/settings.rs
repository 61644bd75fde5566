//! Where the object store is, and who asks: the variables and files that AWS's own tools read.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result, next};
use cheetah_kit::file::if_there;

/// Where the object store is, and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::web) struct Settings {
    pub region: String,
    /// The URI of a store other than AWS's own.
    pub endpoint: Option<String>,
    /// `None` for anonymous requests.
    pub credentials: Option<Credentials>,
}

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::web) struct Credentials {
    pub id: String,
    pub secret: String,
    /// The token of a key that expires.
    pub token: Option<String>,
}

/// Shows no secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials of {}", self.id)
    }
}

type Section = HashMap<String, String>;

impl Settings {
    /// Reads the settings of the user who runs this process.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if there are no credentials, or they are of a kind that is not supported; `Kind::Failed` if
    /// a file of them cannot be read.
    pub fn of_user() -> Result<Self> {
        Self::read(&|name| std::env::var(name).ok())
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let profile = Profile::read(&variable)?;
        let region =
            variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")).or_else(|| profile.value("region"));
        let endpoint = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
        let anonymous = variable("AWS_NO_SIGN_REQUEST")
            .is_some_and(|value| ["1", "true", "yes"].iter().any(|yes| value.eq_ignore_ascii_case(yes)));
        Ok(Self {
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            endpoint: endpoint.or_else(|| profile.value("endpoint_url")),
            credentials: if anonymous { None } else { Some(credentials(&variable, &profile)?) },
        })
    }
}

fn credentials(variable: &dyn Fn(&str) -> Option<String>, profile: &Profile) -> Result<Credentials> {
    if let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
        return Ok(Credentials { id, secret, token: variable("AWS_SESSION_TOKEN") });
    }
    if let (Some(id), Some(secret)) = (profile.value("aws_access_key_id"), profile.value("aws_secret_access_key")) {
        return Ok(Credentials { id, secret, token: profile.value("aws_session_token") });
    }
    let name = &profile.name;
    let other = ["role_arn", "sso_session", "sso_start_url", "credential_process"];
    Err(match other.iter().find(|key| profile.value(key).is_some()) {
        Some(key) => Error::misuse(format!("profile {name} has {key}, which is not supported"))
            .next(next::Source::ExportKey { profile: name.to_owned() }),
        None => Error::misuse(
            "there are no credentials for the object store; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
             AWS_PROFILE, or AWS_NO_SIGN_REQUEST=true for a public bucket",
        ),
    })
}

/// A section of the user's files.
struct Profile {
    name: String,
    /// From the file of credentials first, then from the file of settings.
    sections: Vec<Section>,
}

impl Profile {
    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let named = variable("AWS_PROFILE");
        let name = named.clone().unwrap_or_else(|| "default".to_owned());
        let file = |own: &str, usual: &str| {
            let usual = || {
                variable("HOME")
                    .or_else(|| variable("USERPROFILE"))
                    .map(|home| Path::new(&home).join(".aws").join(usual))
            };
            variable(own).map(PathBuf::from).or_else(usual)
        };
        let mut sections = Vec::new();
        if let Some(path) = file("AWS_SHARED_CREDENTIALS_FILE", "credentials") {
            sections.extend(section(&text(&path)?, &name));
        }
        if let Some(path) = file("AWS_CONFIG_FILE", "config") {
            let text = text(&path)?;
            sections.extend(section(&text, &format!("profile {name}")));
            sections.extend(section(&text, &name).filter(|_| name == "default"));
        }
        match named {
            Some(_) if sections.is_empty() => Err(Error::misuse(format!(
                "there is no profile {name} (AWS_PROFILE) in ~/.aws/credentials and ~/.aws/config"
            ))),
            _ => Ok(Self { name, sections }),
        }
    }

    fn value(&self, key: &str) -> Option<String> {
        self.sections.iter().find_map(|section| section.get(key)).filter(|value| !value.is_empty()).cloned()
    }
}

/// Returns the content of a file; nothing if there is none.
fn text(path: &Path) -> Result<String> {
    let read = if_there(std::fs::read_to_string(path)).map(Option::unwrap_or_default);
    read.map_err(|error| Error::failed(format!("reading {}: {error}", path.display())))
}

/// Returns the values below the heading `[name]`; `None` if there is no such heading. Indented lines belong to a value
/// that is not used here.
fn section(text: &str, name: &str) -> Option<Section> {
    let heading = |line: &str| {
        let heading = line.strip_prefix('[')?.split(']').next()?;
        Some(heading.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let lines = text.lines().skip_while(|line| heading(line).as_deref() != Some(name));
    let mut lines = lines.peekable();
    lines.next()?;
    let lines = lines.take_while(|line| !line.starts_with('['));
    let pairs = lines.filter(|line| !line.starts_with([' ', '\t', '#', ';'])).filter_map(|line| line.split_once('='));
    Some(pairs.map(|(key, value)| (key.trim().to_lowercase(), value.trim().to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the settings with these variables and a home that has these files.
    fn read(variables: &[(&str, &str)], credentials: &str, config: &str) -> Result<Settings> {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
        std::fs::write(home.path().join(".aws/config"), config).unwrap();
        let home = home.path().to_str().unwrap();
        let found = |name: &str| variables.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned());
        Settings::read(&|name| if name == "HOME" { Some(home.to_owned()) } else { found(name) })
    }

    const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden")];

    #[test]
    fn variables_come_before_files() {
        let files = ("[default]\naws_access_key_id = other\naws_secret_access_key = x\n", "[default]\nregion = a\n");
        let settings = read(&[&KEY[..], &[("AWS_DEFAULT_REGION", "b")]].concat(), files.0, files.1).unwrap();
        assert_eq!((settings.region.as_str(), settings.credentials.as_ref().unwrap().id.as_str()), ("b", "id"));
        assert!(!format!("{settings:?}").contains("hidden"));
        let endpoints = [("AWS_ENDPOINT_URL", "https://all"), ("AWS_ENDPOINT_URL_S3", "https://one")];
        let settings = read(&[&KEY[..], &endpoints].concat(), "", "").unwrap();
        assert_eq!((settings.endpoint.as_deref(), settings.region.as_str()), (Some("https://one"), "us-east-1"));
    }

    #[test]
    fn a_profile_is_read_from_both_files() {
        let credentials = "[default]\naws_access_key_id=x\n\n[lab]\n# key\naws_access_key_id = id\n\
                           aws_secret_access_key = a=b\naws_session_token = passing\n[other]\nregion = wrong\n";
        let config = "[profile  lab]\nregion = eu-north-1\ns3 =\n  endpoint_url = https://nested\n\
                      endpoint_url = https://store\n";
        let settings = read(&[("AWS_PROFILE", "lab")], credentials, config).unwrap();
        let token = Some("passing".to_owned());
        assert_eq!(settings.credentials, Some(Credentials { id: "id".into(), secret: "a=b".into(), token }));
        assert_eq!((settings.region.as_str(), settings.endpoint.as_deref()), ("eu-north-1", Some("https://store")));
    }

    #[test]
    fn missing_credentials_are_a_misuse_that_says_what_to_set() {
        let refused = |variables: &[(&str, &str)], config: &str, name: &str| {
            let error = read(variables, "", config).unwrap_err();
            assert!(error.is_misuse() && error.to_string().contains(name), "{error}");
        };
        refused(&[], "", "AWS_ACCESS_KEY_ID");
        refused(&[("AWS_PROFILE", "absent")], "[default]\n", "absent");
        let error = read(&[("AWS_PROFILE", "lab")], "", "[profile lab]\nrole_arn = arn:x\n").unwrap_err();
        assert!(error.is_misuse() && error.has_next(next::Source::ExportKey { profile: "lab".into() }), "{error}");
        assert_eq!(read(&[("AWS_NO_SIGN_REQUEST", "YES")], "", "").unwrap().credentials, None);
    }
}
