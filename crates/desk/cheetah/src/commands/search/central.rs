//! Rules without atoms, in words.

/// Why a rule has no atoms, by the name of the reason.
pub fn why(why: &str) -> &'static str {
    match why {
        "condition" => "the condition may hold where none of the strings is",
        "strings" => "the strings have too few bytes that are fixed",
        "too-many" => "there are too many strings in all rules",
        _ => "they are not understood as a whole",
    }
}
