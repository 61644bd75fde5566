use proptest::prelude::*;

use super::*;
use crate::invitation::Token;

const NOW: Seconds = 1_000_000;

fn key(number: u8) -> Fingerprint {
    Fingerprint([number; 32])
}

fn token(number: u8) -> TokenHash {
    Token::from_bytes([number; 16]).hash()
}

fn applicant(name: &str, number: u8) -> Applicant {
    Applicant { name: name.into(), key: key(number), called_from: None, hosts: Vec::new() }
}

fn open(uses: u32) -> Register {
    let mut register = Register::new();
    register.invite(token(1), Role::Node, NOW, 60, uses);
    register
}

fn admit(register: &mut Register, number: u8, now: Seconds) -> Result<Member, Denied> {
    register.admit_invited(token(1), &applicant("lab", number), number.into(), now).cloned()
}

#[test]
fn an_invitation_admits_as_often_as_it_says_and_not_after_its_end() {
    let mut register = open(2);
    assert_eq!(admit(&mut register, 1, NOW).unwrap().role, Role::Node);
    assert_eq!(admit(&mut register, 2, NOW + 59).unwrap().name, "lab-2");
    assert_eq!(admit(&mut register, 3, NOW), Err(Denied::UsedUp));
    let mut register = open(2);
    assert_eq!(admit(&mut register, 1, NOW + 60), Err(Denied::Expired));
    assert_eq!(register.admit_invited(token(2), &applicant("x", 1), 1, NOW).cloned(), Err(Denied::Unknown));
    assert!(register.members().is_empty());
}

#[test]
fn asking_again_with_the_same_key_gives_the_same_member_and_uses_nothing_up() {
    let mut register = open(1);
    let first = admit(&mut register, 1, NOW).unwrap();
    assert_eq!(register.admit_invited(token(1), &applicant("other", 1), 99, NOW + 1000).cloned(), Ok(first));
    assert_eq!(register.invitations()[0].uses, 1);
}

#[test]
fn a_revoked_member_joins_neither_with_its_key_nor_with_another() {
    let mut register = open(9);
    admit(&mut register, 1, NOW).unwrap();
    assert_eq!(register.revoke(&["LAB"], NOW), [register.invitations()[0].id.clone()]);
    assert_eq!(admit(&mut register, 1, NOW), Err(Denied::RevokedKey));
    assert_eq!(admit(&mut register, 2, NOW), Err(Denied::Closed));
    assert_eq!((register.revision(), register.revoked().count()), (1, 1));
    register.revoke(&["lab", "nobody"], NOW);
    assert_eq!(register.revision(), 1, "nothing changed");
    // Its name is not given to another machine.
    register.invite(token(3), Role::Agent, NOW, 60, 1);
    let next = register.admit_invited(token(3), &applicant("lab", 7), 7, NOW).unwrap();
    assert_eq!((&*next.name, next.role), ("lab-2", Role::Agent));
}

#[test]
fn a_members_key_is_not_registered_twice() {
    let mut register = open(9);
    admit(&mut register, 1, NOW).unwrap();
    register.invite(token(2), Role::Examiner, NOW, 60, 1);
    let again = register.admit_invited(token(2), &applicant("lab", 1), 5, NOW).cloned();
    assert_eq!(again, Err(Denied::KeyTaken), "a node does not become an examiner");
    assert_eq!(register.invitations()[1].uses, 0);
}

#[test]
fn a_member_cannot_take_the_address_or_the_name_of_another() {
    let mut register = open(9);
    let host = |text: &str| text.parse::<Host>().unwrap();
    let mut first = applicant("one", 1);
    (first.called_from, first.hosts) = (Some(host("10.0.0.1")), vec![host("10.1.0.1"), host("127.0.0.1")]);
    let mut second = applicant("ONE", 2);
    (second.called_from, second.hosts) =
        (Some(host("10.0.0.2")), vec![host("10.0.0.1"), host("10.1.0.1"), host("10.1.0.2"), host("lab.example")]);
    let first = register.admit_invited(token(1), &first, 1, NOW).unwrap().clone();
    assert_eq!(first.hosts, [host("10.0.0.1"), host("10.1.0.1")]);
    let second = register.admit_invited(token(1), &second, 2, NOW).unwrap();
    assert_eq!((&*second.name, &*second.hosts), ("ONE-2", &[host("10.0.0.2"), host("10.1.0.2")][..]));
}

#[test]
fn names_are_cleaned() {
    for (wanted, name) in
        [("", "member"), ("../../etc", "etc"), ("a b\u{7}", "a-b"), ("Ünit 7", "nit-7"), ("...", "member")]
    {
        assert_eq!(clean_name(wanted), name);
    }
    assert_eq!(clean_name(&"x".repeat(900)).len(), NAME_LEN_MAX);
    let mut register = open(9);
    let long = "x".repeat(NAME_LEN_MAX);
    for number in 1..4 {
        let member = register.admit_invited(token(1), &applicant(&long, number), number.into(), NOW).unwrap();
        assert!(member.name.len() <= NAME_LEN_MAX);
    }
}

#[test]
fn old_invitations_make_way_for_new_ones() {
    let mut register = Register::new();
    for number in 0..=u8::MAX {
        register.invite(token(number), Role::Node, NOW + u64::from(number), 60, 1);
    }
    register.invite(TokenHash([7; 32]), Role::Node, NOW + 100, 60, 1);
    assert_eq!(register.invitations().len(), INVITATIONS_MAX);
    assert!(register.is_open(NOW + 100) && !register.is_open(NOW + 10_000));
}

#[test]
fn a_damaged_register_is_refused() {
    let mut register = open(9);
    admit(&mut register, 1, NOW).unwrap();
    let text = register.encode().unwrap();
    assert_eq!(Register::decode(&text), Ok(register));
    for (from, to) in [
        ("version = 1", "version = 7"),
        ("version = 1", ""),
        ("role = \"node\"", "role = \"room\""),
        ("role = \"node\"", "role = \"king\""),
        ("uses = 1", "uses = 10"),
        ("name = \"lab\"", "name = \"../lab\""),
        ("serial = \"4", "serial = \"04"),
        ("serial = \"4", "serial = \"c"),
        ("[[member]]", "[[member]]\nowner = true"),
    ] {
        let edited = text.replacen(from, to, 1);
        assert!(edited != text && Register::decode(&edited).is_err(), "{from}: {text}");
    }
    for len in 0..text.len() - 1 {
        // A part is an error, or another register; it never panics.
        let _ = Register::decode(&text[..len]);
    }
}

/// What a user may do to a register.
#[derive(Debug, Clone)]
enum Step {
    /// With a new token, for this number of uses.
    Invite(u32),
    Join(u8, u8),
    Revoke(u8),
    Later(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..4_u32).prop_map(Step::Invite),
        (0..8_u8, 0..12_u8).prop_map(|(token, key)| Step::Join(token, key)),
        (0..12_u8).prop_map(Step::Revoke),
        (0..40_u8).prop_map(Step::Later),
    ]
}

proptest! {
    #[test]
    fn no_order_of_steps_admits_more_than_was_invited(steps in proptest::collection::vec(step(), 0..80)) {
        let (mut register, mut now, mut invited, mut tokens) = (Register::new(), NOW, 0, 0);
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Invite(uses) => {
                    register.invite(token(tokens), Role::Node, now, 30, uses);
                    tokens += 1;
                    invited += uses;
                }
                Step::Join(number, by) => {
                    let before = register.clone();
                    let joined = register.admit_invited(token(number), &applicant("n", by), (at as u128) << 8, now).cloned();
                    match joined {
                        Ok(member) => prop_assert!(member.revoked.is_none() && member.key == key(by)),
                        Err(_) => prop_assert_eq!(&register, &before, "a refusal changes nothing"),
                    }
                }
                Step::Revoke(number) => {
                    let name = if number < 2 { "n".to_owned() } else { format!("n-{number}") };
                    register.revoke(&[&name], now);
                }
                Step::Later(seconds) => now += u64::from(seconds),
            }
            let decoded = Register::decode(&register.encode().unwrap());
            prop_assert_eq!(decoded.as_ref(), Ok(&register));
        }
        prop_assert!(register.members().len() <= invited as usize);
        let uses: u32 = register.invitations().iter().map(|invitation| invitation.uses).sum();
        prop_assert_eq!(uses as usize, register.members().len());
    }

    #[test]
    fn any_text_is_a_register_or_refused(text: String) {
        let _ = Register::decode(&text);
    }

    #[test]
    fn serials_are_positive_and_have_sixteen_bytes(random: u128) {
        let text = format!("{:032x}", as_serial(random));
        prop_assert!(is_serial(&text), "{}", text);
        prop_assert!((0x40..0x80).contains(&u8::from_str_radix(&text[..2], 16).unwrap()));
    }
}

fn server(name: &str, host: &str, nbd_port: u16) -> Server {
    let hosts = vec![host.parse().unwrap()];
    Server { name: name.into(), hosts, nbd_port, control_port: Some(nbd_port + 1) }
}

#[test]
fn each_server_of_a_machine_is_known_until_it_ends_or_another_has_its_address() {
    let mut register = open(9);
    let member = admit(&mut register, 1, NOW).unwrap();
    let names = |register: &Register| -> Vec<String> {
        let member = register.member(&member.name).unwrap();
        member.servers.iter().map(|server| format!("{} {}", server.name, server.nbd_port)).collect()
    };
    for (name, port) in [("a", 1), ("b", 3), ("a", 1)] {
        register.check_in(&key(1), Some(server(name, "10.0.0.7", port)), false).unwrap();
    }
    register.check_in(&key(1), None, false).unwrap();
    assert_eq!(names(&register), ["a 1", "b 3"]);
    register.check_in(&key(1), Some(server("c", "10.0.0.7", 1)), false).unwrap();
    register.check_in(&key(1), Some(server("d", "10.0.0.8", 1)), false).unwrap();
    assert_eq!(names(&register), ["b 3", "c 1", "d 1"]);
    register.check_in(&key(1), Some(server("b", "10.0.0.7", 3)), true).unwrap();
    assert_eq!(names(&register), ["c 1", "d 1"]);
    assert_eq!(Register::decode(&register.encode().unwrap()), Ok(register.clone()));

    assert_eq!(register.check_in(&key(2), Some(server("x", "h", 1)), false), Err(Denied::NoMember));
    register.revoke(&[&member.name], NOW);
    assert_eq!(register.check_in(&key(1), None, false), Err(Denied::RevokedKey));
}

#[test]
fn a_member_cannot_fill_the_register_with_servers() {
    let mut register = open(9);
    admit(&mut register, 1, NOW).unwrap();
    for port in 1..=100 {
        register.check_in(&key(1), Some(server("a", "10.0.0.7", port)), false).unwrap();
    }
    let servers = &register.members()[0].servers;
    assert_eq!((servers.len(), servers[0].nbd_port), (SERVERS_MAX, 100 - 15));
    let sound = server("a", "h", 1);
    let malformed = [
        Server { nbd_port: 0, ..sound.clone() },
        Server { control_port: Some(0), ..sound.clone() },
        Server { hosts: Vec::new(), ..sound.clone() },
        Server { name: "a b".into(), ..sound.clone() },
        Server { hosts: vec!["h".parse().unwrap(); MEMBER_HOSTS_MAX + 1], ..sound },
    ];
    for server in malformed {
        let before = register.clone();
        register.check_in(&key(1), Some(server), false).unwrap();
        assert_eq!(register, before);
    }
}
