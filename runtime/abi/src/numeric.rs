//! Bit-exact numeric formats and the comparison of results.
