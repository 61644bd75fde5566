//! The image: noise and text in turns, a MiB each, with words planted in it.

use crate::lists::{Choice, List};

/// A mebibyte.
pub const MIB: usize = 1 << 20;
/// Different pieces of text, of a MiB each. Together they are larger than a processor's caches.
const TEXTS: usize = 32;
/// Words of the text's language, of which few are frequent.
const VOCABULARY: usize = 2000;
/// The most frequent ones are short. Others are as long as the words of lists, so that no way may skip all text for its length.
const FREQUENT: usize = 100;
/// At the ends stands no word: without their neighbours, the product does not search them.
const END_BYTES: usize = 4096;
/// Where words are planted in a MiB: from here on, at places this far apart.
const PLANTED_FROM: usize = 64 << 10;

/// Returns an image of this size. In each MiB stands a word of each list, and one of the first ten.
pub fn of(size_mib: usize, lists: &[List]) -> Vec<u8> {
    let mut choice = Choice::new(1);
    let texts: Vec<_> = (0..TEXTS).map(|_| text(&mut choice)).collect();
    let mut image = Vec::with_capacity(size_mib * MIB);
    for number in 0..size_mib {
        match texts.get(number / 2 % TEXTS) {
            Some(text) if number % 2 == 1 => image.extend_from_slice(text),
            _ => image.extend((0..MIB / 8).flat_map(|_| choice.draw().to_le_bytes())),
        }
    }
    let apart = (MIB - 2 * PLANTED_FROM) / (2 * lists.len().max(1));
    for number in 0..size_mib {
        let mut at = number * MIB + PLANTED_FROM;
        for list in lists {
            for first in [list.words.len(), 10] {
                let word = choice.among(&list.words[..first.min(list.words.len())]);
                // Where case counts, words in capitals are not found, by any way.
                let word = if choice.below(4) == 0 { word.to_uppercase() } else { word.clone() };
                let begin = at + choice.below(apart - 64);
                image[begin..begin + word.len()].copy_from_slice(word.as_bytes());
                at += apart;
            }
        }
    }
    let end = image.len() - END_BYTES;
    image[..END_BYTES].fill(0);
    image[end..].fill(0);
    image
}

/// A MiB of text.
fn text(choice: &mut Choice) -> Vec<u8> {
    let vocabulary: Vec<_> = (0..VOCABULARY)
        .map(|number| {
            let letters = if number < FREQUENT { 2 + choice.below(4) } else { 4 + choice.below(9) };
            choice.word(letters, if number % 8 == 0 { 1 } else { 0 })
        })
        .collect();
    let mut sums = Vec::new();
    for rank in 1..=VOCABULARY {
        sums.push(sums.last().copied().unwrap_or_default() + 1_000_000 / rank);
    }
    let all = sums.last().copied().unwrap_or(1);
    let mut text = Vec::with_capacity(MIB + 64);
    for number in 0.. {
        let drawn = choice.below(all);
        let rank = sums.partition_point(|sum| *sum <= drawn);
        text.extend(vocabulary.get(rank).into_iter().flat_map(|word| word.bytes()));
        text.push(if number % 12 == 0 { b'\n' } else { b' ' });
        if text.len() >= MIB {
            break;
        }
    }
    text.truncate(MIB);
    text
}
