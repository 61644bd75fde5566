//! Reading E01, S01 and Ex01 images: images made by other programs, damaged images, and real ones.

mod acquired;
mod damage;
mod evidence;
mod ex01;
mod sections;
mod support;
mod together;
mod unreadable;
