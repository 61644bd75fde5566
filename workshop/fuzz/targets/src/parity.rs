//! The erasure code: missing shards are restored, updated parity equals that of the new data, and shards of any lengths
//! and indices are refused without a panic.

use cheetah_parity::{accumulate, encode, reconstruct, update};

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some(([choice, count, first, second, changed], bytes)) = data.split_first_chunk() else { return };
    let (count, parity_count) = (usize::from(*count).max(1), usize::from(choice & 1) + 1);
    if choice & 2 != 0 {
        return refuse(usize::from(*first), usize::from(*second), bytes);
    }
    let len = bytes.len() / count;
    let data: Vec<&[u8]> = (0..count).map(|i| &bytes[i * len..][..len]).collect();
    let parity = encoded(&data, parity_count);

    let whole: Vec<&[u8]> = data.iter().copied().chain(parity.iter().map(Vec::as_slice)).collect();
    let mut shards: Vec<_> = whole.iter().copied().map(Some).collect();
    let missing = [first, second].map(|index| usize::from(*index) % whole.len());
    let missing = &missing[..parity_count];
    missing.iter().for_each(|index| shards[*index] = None);
    let mut restored = vec![vec![0xa5; len]; missing.len()];
    let mut targets: Vec<_> = missing.iter().copied().zip(restored.iter_mut().map(Vec::as_mut_slice)).collect();
    let (present_data, present_parity) = shards.split_at(count);
    assert_eq!(reconstruct(present_data, present_parity, &mut targets), Ok(()));
    assert!(missing.iter().zip(&restored).all(|(index, bytes)| whole[*index] == bytes));

    let changed = usize::from(*changed) % count;
    let new: Vec<u8> = data[changed].iter().rev().map(|byte| !byte).collect();
    let mut after = data.clone();
    after[changed] = &new;
    let mut updated = parity.clone();
    for (index, parity) in updated.iter_mut().enumerate() {
        assert_eq!(update(index, changed, data[changed], &new, parity), Ok(()));
    }
    assert_eq!(updated, encoded(&after, parity_count));
}

fn encoded(data: &[&[u8]], parity_count: usize) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0xa5; data[0].len()]; parity_count];
    assert_eq!(encode(data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()), Ok(()));
    parity
}

/// Calls with arguments of a careless caller, which must return.
fn refuse(first: usize, second: usize, bytes: &[u8]) {
    let (left, right) = bytes.split_at(bytes.len() / 2);
    let (mut p, mut q) = (left.to_vec(), right.to_vec());
    let _ = encode(&[left, right], &mut [&mut p, &mut q]);
    let _ = encode(&vec![left; first * 2], &mut [&mut p]);
    let _ = accumulate(first % 4, second * 2, right, &mut p);
    let _ = update(first % 4, second * 2, left, right, &mut q);
    let data = vec![(first & 1 == 0).then_some(left); first];
    let parity = vec![(second & 1 == 0).then_some(right); second % 4];
    let _ = reconstruct(&data, &parity, &mut [(first, &mut p), (second, &mut q), (0, &mut [])]);
}
