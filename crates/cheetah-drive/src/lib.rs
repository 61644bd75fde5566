//! Drive files, and assembling the stack of layers they describe.
