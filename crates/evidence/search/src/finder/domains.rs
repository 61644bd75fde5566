//! Names of hosts and domains.

use crate::expression::{Candidate, Class, Lead, Sign};

/// Labels with dots between them; the last has letters only.
pub const DOMAIN: &str = r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}";

/// Where one is looked for: at the dot after its first label.
pub static LEAD: Lead = Lead {
    sign: Sign::Mark { text: ".", class: Class::of("A-Za-z0-9-"), before_max: 63 },
    not_after: Class::of("A-Za-z0-9_-"),
    first: Class::of("A-Za-z0-9"),
};

/// The generic top levels that are in wide use. One of two letters is taken for a country's.
const TOP_LEVELS: &str = "academy aero agency app arpa art asia bank bar bid bike biz blog build business buzz cafe camp capital car care cash \
casino cat center chat city click clinic cloud club codes coffee com community company computer consulting coop credit \
date dating design dev digital direct directory domains download earth edu education email energy engineering events \
exchange expert express family fan finance financial fitness foundation fun fund fyi games gallery global gmbh gold gov \
group guide guru health help holdings host hosting house icu info ink institute int international investments jobs land \
law legal life link live loan lol ltd management market marketing media men mil mobi moe money museum name net network \
news ninja one onion online org page partners party photo photos pics pizza plus post press pro productions properties \
pub racing red rent report reviews rocks run sale school science services shop show site social software solutions space \
storage store stream studio support surf systems team tech technology tel tips today tools top tours town toys trade \
training travel university uno vegas ventures video vip vision wang watch webcam website wiki win work works world wtf \
xxx xyz zone";

/// The top levels of countries and territories.
const COUNTRIES: &str = "ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc \
cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr ga gd ge gf gg gh gi gl gm \
gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc li lk \
lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg \
ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa sb sc sd se sg sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl \
tm tn to tr tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw";

/// A host or domain.
pub fn domain(candidate: &Candidate<'_>) -> Option<usize> {
    match candidate.before {
        Some(byte) if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) => None,
        _ => domain_len(candidate, 0),
    }
}

/// The length of the domain that begins at `from` of the candidate, counted from there: its longest part whose last label is a
/// known top level.
pub fn domain_len(candidate: &Candidate<'_>, from: usize) -> Option<usize> {
    let text = candidate.text.get(from..)?;
    let labels = |len: usize| text.get(..len).map(|part| part.split(|byte| *byte == b'.'));
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at).chain([text.len()]);
    let mut ends: Vec<_> = ends.skip(1).collect();
    while let Some(len) = ends.pop() {
        let follows = candidate.follower(from + len);
        let is_cut = follows.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let mut labels = labels(len)?;
        if !is_cut && labels.clone().next_back().is_some_and(is_top_level) && labels.all(is_label) {
            return Some(len);
        }
    }
    None
}

fn is_label(label: &[u8]) -> bool {
    !label.is_empty() && !label.starts_with(b"-") && !label.ends_with(b"-")
}

fn is_top_level(label: &[u8]) -> bool {
    let Ok(label) = std::str::from_utf8(label) else { return false };
    let label = label.to_ascii_lowercase();
    let known = if label.len() == 2 { COUNTRIES } else { TOP_LEVELS };
    known.split(' ').any(|known| known == label)
}
