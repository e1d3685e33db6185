//! Multi-head latent attention without position encoding, in its absorbed form: one token of one request.
//!
//! Letters: H heads, N width of the compressed part of queries and keys, P width of the part that passes the
//! latent by (shared by all heads), V width of values, L width of the latent, T rows in the cache. A cache row is
//! [normalised latent L | key P]. Formulas: official modelling code of the model and the absorbed form of vLLM.

use super::norm::rms_norm;
use super::pointwise::sigmoid;

/// The two halves of `kv_b_proj` as the kernels read them.
#[derive(Debug, Clone, PartialEq)]
pub struct UpProjections {
    /// W_UK transposed within a head: [H, L, N].
    pub wuk: Vec<f64>,
    /// W_UV: [H, V, L].
    pub wuv: Vec<f64>,
}

/// Cuts `kv_b` [H * (N + V), L], whose rows are key then value of each head.
pub fn split_kv_b(kv_b: &[f64], heads: usize, nope: usize, value: usize) -> UpProjections {
    let latent = kv_b.len() / (heads * (nope + value));
    let mut halves = UpProjections {
        wuk: vec![0.0; heads * latent * nope],
        wuv: vec![0.0; heads * value * latent],
    };
    for h in 0..heads {
        let rows = &kv_b[h * (nope + value) * latent..][..(nope + value) * latent];
        for l in 0..latent {
            for n in 0..nope {
                halves.wuk[(h * latent + l) * nope + n] = rows[n * latent + l];
            }
        }
        halves.wuv[h * value * latent..][..value * latent].copy_from_slice(&rows[nope * latent..]);
    }
    halves
}

/// Absorbed queries: for each head [sum over n of wuk`[h, l, n]` * q`[h, n]` | the P last of q`[h]`].
///
/// `wuk` [H, L, N], `q` [H, N + P]. Returns [H, L + P].
pub fn absorb(wuk: &[f64], q: &[f64], heads: usize, nope: usize) -> Vec<f64> {
    let width = q.len() / heads;
    let latent = wuk.len() / (heads * nope);
    let mut out = Vec::with_capacity(heads * (latent + width - nope));
    for h in 0..heads {
        let q = &q[h * width..][..width];
        for l in 0..latent {
            let row = &wuk[(h * latent + l) * nope..][..nope];
            out.push(row.iter().zip(q).map(|(w, q)| w * q).sum());
        }
        out.extend(&q[nope..]);
    }
    out
}

/// The row that the cache gets for a token: RMSNorm of the latent times `gamma` `[L]`, then the key as it is.
///
/// `kv_a` [L + P], the projection of the token. Returns [L + P].
pub fn cache_row(kv_a: &[f64], gamma: &[f64], eps: f64) -> Vec<f64> {
    let (latent, key) = kv_a.split_at(gamma.len());
    let mut row = rms_norm(latent, gamma, eps);
    row.extend(key);
    row
}

/// What one head reads from some rows of the cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The weight of each row, `[T]`.
    pub probabilities: Vec<f64>,
    /// The weighted latents, `[L]`; zeros where there is no row.
    pub o: Vec<f64>,
    /// Natural logarithm of the sum of the exponentials of the scaled scores; -inf where there is no row.
    pub lse: f64,
}

/// softmax(scale * q . row) over the rows, then the weighted sum of their first `latent` elements.
///
/// `q` [L + P], one head's absorbed query; `rows` [T, L + P], which may be empty.
pub fn attend(q: &[f64], rows: &[f64], latent: usize, scale: f64) -> Reading {
    let scores: Vec<f64> = rows
        .chunks(q.len())
        .map(|row| row.iter().zip(q).map(|(r, q)| r * q).sum::<f64>() * scale)
        .collect();
    let mut reading = Reading {
        probabilities: Vec::with_capacity(scores.len()),
        o: vec![0.0; latent],
        lse: f64::NEG_INFINITY,
    };
    if scores.is_empty() {
        return reading;
    }
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
    reading.lse = top + sum.ln();
    for (score, row) in scores.iter().zip(rows.chunks(q.len())) {
        let probability = (score - top).exp() / sum;
        for (o, r) in reading.o.iter_mut().zip(row) {
            *o += probability * r;
        }
        reading.probabilities.push(probability);
    }
    reading
}

/// Joins readings of disjoint rows: o = sum of e^(lse_i - m) o_i / sum of e^(lse_i - m), m the greatest lse.
///
/// Each part is (o `[L]`, lse) in the order of summation. A NaN or +inf lse counts as -inf; when all are -inf the
/// result is zeros and -inf. Returns (o `[L]`, lse).
pub fn merge(parts: &[(&[f64], f64)]) -> (Vec<f64>, f64) {
    let counted =
        |lse: f64| if lse.is_nan() || lse == f64::INFINITY { f64::NEG_INFINITY } else { lse };
    let top = parts.iter().map(|&(_, lse)| counted(lse)).fold(f64::NEG_INFINITY, f64::max);
    let width = parts.first().map_or(0, |(o, _)| o.len());
    let mut o = vec![0.0; width];
    if top == f64::NEG_INFINITY {
        return (o, top);
    }
    let mut sum = 0.0;
    for &(part, lse) in parts {
        let weight = (counted(lse) - top).exp();
        if weight == 0.0 {
            // What an empty part holds must not matter.
            continue;
        }
        sum += weight;
        for (o, p) in o.iter_mut().zip(part) {
            *o += weight * p;
        }
    }
    o.iter_mut().for_each(|o| *o /= sum);
    (o, top + sum.ln())
}

/// Values from latents: `wuv` [H, V, L] times `o` [H, L] head by head. Returns [H, V].
pub fn value(wuv: &[f64], o: &[f64], heads: usize) -> Vec<f64> {
    let latent = o.len() / heads;
    let per_head = wuv.len() / heads;
    let mut out = Vec::with_capacity(wuv.len() / latent);
    for h in 0..heads {
        let o = &o[h * latent..][..latent];
        for row in wuv[h * per_head..][..per_head].chunks(latent) {
            out.push(row.iter().zip(o).map(|(w, o)| w * o).sum());
        }
    }
    out
}

/// o * sigmoid(g), element by element.
pub fn output_gate(o: &[f64], g: &[f64]) -> Vec<f64> {
    o.iter().zip(g).map(|(o, &g)| o * sigmoid(g)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: usize = 2;
    const NOPE: usize = 3;
    const ROPE: usize = 2;
    const VALUE: usize = 4;
    const LATENT: usize = 5;

    fn numbers(count: usize, seed: usize) -> Vec<f64> {
        (0..count).map(|i| ((i * 37 + seed * 101) % 23) as f64 / 11.0 - 1.0).collect()
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn the_absorbed_form_is_the_direct_form() {
        let kv_b = numbers(HEADS * (NOPE + VALUE) * LATENT, 1);
        let q = numbers(HEADS * (NOPE + ROPE), 2);
        let rows = numbers(7 * (LATENT + ROPE), 3);
        let scale = 0.4;
        let halves = split_kv_b(&kv_b, HEADS, NOPE, VALUE);
        let absorbed = absorb(&halves.wuk, &q, HEADS, NOPE);
        let mut latents = Vec::new();
        for h in 0..HEADS {
            let q = &absorbed[h * (LATENT + ROPE)..][..LATENT + ROPE];
            latents.extend(attend(q, &rows, LATENT, scale).o);
        }
        let got = value(&halves.wuv, &latents, HEADS);
        for h in 0..HEADS {
            let weights = &kv_b[h * (NOPE + VALUE) * LATENT..][..(NOPE + VALUE) * LATENT];
            let q = &q[h * (NOPE + ROPE)..][..NOPE + ROPE];
            let up =
                |row: &[f64], at: usize| dot(&weights[at * LATENT..][..LATENT], &row[..LATENT]);
            let scores: Vec<f64> = rows
                .chunks(LATENT + ROPE)
                .map(|row| {
                    let key: Vec<f64> = (0..NOPE).map(|n| up(row, n)).collect();
                    scale * (dot(&key, &q[..NOPE]) + dot(&row[LATENT..], &q[NOPE..]))
                })
                .collect();
            let weights = super::super::pointwise::softmax(&scores, 1.0);
            for v in 0..VALUE {
                let values = rows.chunks(LATENT + ROPE).map(|row| up(row, NOPE + v));
                let want: f64 = values.zip(&weights).map(|(value, weight)| value * weight).sum();
                assert!((got[h * VALUE + v] - want).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn parts_join_to_the_whole() {
        let q = numbers(LATENT + ROPE, 4);
        let rows = numbers(9 * (LATENT + ROPE), 5);
        let whole = attend(&q, &rows, LATENT, 1.3);
        for cut in 0..=9 {
            let (left, right) = rows.split_at(cut * (LATENT + ROPE));
            let [a, b] = [left, right].map(|rows| attend(&q, rows, LATENT, 1.3));
            let nothing = [f64::NAN; LATENT];
            let (o, lse) = merge(&[
                (&a.o, a.lse),
                (&nothing, f64::NEG_INFINITY),
                (&b.o, b.lse),
                (&nothing, f64::NAN),
            ]);
            assert!((lse - whole.lse).abs() < 1e-12);
            assert!(o.iter().zip(&whole.o).all(|(a, b)| (a - b).abs() < 1e-12));
        }
        let empty = attend(&q, &[], LATENT, 1.0);
        assert_eq!((empty.lse, &empty.o), (f64::NEG_INFINITY, &vec![0.0; LATENT]));
        assert_eq!(
            merge(&[(&empty.o, empty.lse), (&empty.o, f64::INFINITY)]),
            (empty.o.clone(), empty.lse)
        );
    }

    #[test]
    fn the_key_of_a_cache_row_is_not_normed() {
        assert_eq!(cache_row(&[3.0, 3.0, 7.0], &[1.0, 2.0], 0.0), [1.0, 2.0, 7.0]);
        assert_eq!(output_gate(&[2.0, 4.0], &[0.0, f64::INFINITY]), [1.0, 4.0]);
    }
}
