//! Which multiple of a step is the first to fall into a window, modulo something: Euclid's algorithm with a window.

/// The greatest common divisor; of zero and `n` it is `n`.
pub(crate) const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// `a - b` modulo `modulus`, for any `a` and `b`.
pub(crate) const fn difference(a: u64, b: u64, modulus: u64) -> u64 {
    if a >= b {
        (a - b) % modulus
    } else {
        match (b - a) % modulus {
            0 => 0,
            rest => modulus - rest,
        }
    }
}

/// The smallest `k` for which `from + k * step` falls, modulo `modulus`, into a window: the `length` residues that begin
/// `before` below zero.
///
/// `None` if no `k` does. The window is cyclic; `before < length`, so that it holds zero. Cost: `O(log modulus)`.
pub(crate) fn first_hit(from: u64, step: u64, modulus: u64, before: u64, length: u64) -> Option<u64> {
    assert!(modulus > 0 && before < length, "a window holds zero");
    if length >= modulus {
        return Some(0);
    }
    // From here on before < length < modulus. Multiples of `step` alone must fall into [low, low + length), cyclic.
    let low = difference(modulus - before, from % modulus, modulus);
    if low == 0 || length > modulus - low {
        return Some(0);
    }
    first_multiple(step % modulus, modulus, low, low + (length - 1))
}

/// The smallest `k` with `low <= k * step mod modulus <= high`, for `step < modulus` and `low <= high < modulus`.
///
/// *Lemma.* If a multiple of `step` lies in `[low, high]`, the first one is the answer, as nothing has wrapped before.
/// Otherwise `k * step - j * modulus` lies in `[low, high]` exactly if `j * modulus` lies, modulo `step`, in
/// `[-high, -low]`; this window does not wrap, because no multiple of `step` is in `[low, high]`. `k` rises with `j`, so
/// that the smallest `j` gives the smallest `k`. The pair (modulus, step) becomes (step, modulus mod step) as in
/// Euclid's algorithm, and so the depth is at most 1.45 times the bits of `modulus`.
fn first_multiple(step: u64, modulus: u64, low: u64, high: u64) -> Option<u64> {
    if low == 0 {
        return Some(0);
    }
    if step == 0 {
        return None;
    }
    let rest = low % step;
    let beyond = if rest == 0 { 0 } else { step - rest };
    if beyond <= high - low {
        return Some(low.div_ceil(step));
    }
    let wraps = first_multiple(modulus % step, step, beyond - (high - low), beyond)?;
    Some(rounded_up(low, modulus, wraps, step))
}

/// `(low + modulus * wraps) / step`, rounded up. `wraps < step`, so the quotient is at most `modulus`.
fn rounded_up(low: u64, modulus: u64, wraps: u64, step: u64) -> u64 {
    match modulus.checked_mul(wraps).and_then(|product| product.checked_add(low)) {
        Some(sum) => sum.div_ceil(step),
        None => {
            let sum = u128::from(modulus) * u128::from(wraps) + u128::from(low);
            u64::try_from(sum.div_ceil(u128::from(step))).expect("wraps < step")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(from: u64, step: u64, modulus: u64, before: u64, length: u64) -> Option<u64> {
        (0..modulus).find(|k| (from + k * step + before) % modulus < length)
    }

    #[test]
    fn the_first_hit_is_the_one_that_walking_finds() {
        for modulus in 1..=24 {
            for step in 0..=30 {
                for from in 0..30 {
                    for length in 1..=modulus {
                        for before in [0, length / 2, length - 1] {
                            let found = first_hit(from, step, modulus, before, length);
                            assert_eq!(found, walked(from, step, modulus, before, length));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_moduli_do_not_overflow() {
        // k * step = -k modulo 2^64 - 1: the first that is 1 needs almost as many steps as there are residues.
        let modulus = u64::MAX;
        assert_eq!(first_hit(u64::MAX - 1, u64::MAX - 1, modulus, 0, 1), Some(u64::MAX - 1));
        // 3 has one inverse modulo a power of two, and so one k makes the sum a multiple.
        let k = first_hit(1, 3, 1 << 63, 0, 1).unwrap();
        assert!(k < 1 << 63 && (1 + 3 * u128::from(k)).is_multiple_of(1 << 63));
        assert_eq!(first_hit(1, 2, 1 << 63, 0, 1), None);
    }

    #[test]
    fn differences_are_residues() {
        assert_eq!(difference(3, 10, 5), 3);
        assert_eq!(difference(0, u64::MAX, u64::MAX), 0);
        assert_eq!(difference(10, 3, 4), 3);
        assert_eq!(gcd(0, 7), 7);
        assert_eq!(gcd(64, 4096), 64);
    }
}
