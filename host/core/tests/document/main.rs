//! Documents as values, tested from outside: what is read, what is refused and where, what is written. serde_yaml's own
//! handling of scalars is out of scope.

mod read;
mod write;
