//! Collectives between simulated ranks. An element that one rank has not written is poison for all that
//! get it.

use kernel_abi::numeric::{float_from_f32, float_to_f32};

use crate::memory::Buffer;

/// The sum over the ranks of one element, from rank 0 upwards in f32, rounded once.
fn sum(ranks: &[Vec<Buffer>], src: usize, element: usize) -> Option<u64> {
    let dtype = ranks[0][src].dtype();
    let mut total: Option<f32> = None;
    for buffers in ranks {
        let value = float_to_f32(dtype, buffers[src].code(element)?)?;
        total = Some(total.map_or(value, |t| t + value));
    }
    float_from_f32(dtype, total?)
}

fn set(buffer: &mut Buffer, element: usize, code: Option<u64>) {
    match code {
        Some(code) => buffer.write(element, code),
        None => buffer.forget(element),
    }
}

/// `dst` of every rank = the sum of `src` over the ranks.
pub(super) fn all_reduce(ranks: &mut [Vec<Buffer>], src: usize, dst: usize) {
    if let [only] = ranks {
        // The sum of one addend is that addend.
        if src != dst {
            only[dst] = only[src].clone();
        }
        return;
    }
    let sums: Vec<Option<u64>> = (0..ranks[0][src].len()).map(|i| sum(ranks, src, i)).collect();
    for buffers in ranks {
        for (i, &code) in sums.iter().enumerate() {
            set(&mut buffers[dst], i, code);
        }
    }
}

/// `dst[row]` of every rank = the rows `src[row]` of all ranks, side by side.
pub(super) fn all_gather(ranks: &mut [Vec<Buffer>], src: usize, dst: usize, rows: usize) {
    let part = ranks[0][src].len() / rows;
    let mut codes = Vec::with_capacity(ranks.len() * rows * part);
    for row in 0..rows {
        for buffers in ranks.iter() {
            codes.extend((0..part).map(|i| buffers[src].code(row * part + i)));
        }
    }
    for buffers in ranks {
        for (i, &code) in codes.iter().enumerate() {
            set(&mut buffers[dst], i, code);
        }
    }
}

/// `dst[row]` of rank `r` = part `r` of the row of the sum of `src` over the ranks.
pub(super) fn reduce_scatter(ranks: &mut [Vec<Buffer>], src: usize, dst: usize, rows: usize) {
    let row_len = ranks[0][src].len() / rows;
    let part = row_len / ranks.len();
    for rank in 0..ranks.len() {
        for row in 0..rows {
            for i in 0..part {
                let code = sum(ranks, src, row * row_len + rank * part + i);
                set(&mut ranks[rank][dst], row * part + i, code);
            }
        }
    }
}
