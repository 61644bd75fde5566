//! Moves: a member goes from one node to another while the drive is read and written.
//!
//! A member that is in sync moves in these steps. The engine decides them (`engine`), `members` holds the two
//! connections, and `redundant` fills the node and ends the move.
//!
//! 1. **Begin.** A stored map names the *incoming* node, which may lack every region. Only now is memory allocated there,
//!    so a later writer finds it in any case.
//! 2. **Attach.** From now on each write goes to both nodes. The member is read as before.
//! 3. **Fill.** Resynchronization copies region by region, under the locks of the groups and at its usual pace.
//! 4. **Finish.** Once the incoming node lacks no region, all groups are locked for a moment, so that no write is in
//!    flight, and the incoming node takes the member's place in the next epoch of the map. The former node still gets
//!    every write until that epoch is settled: readers elsewhere may read it for as long.
//! 5. **Leave.** The former node gets no more writes. Its part can be wiped.
//!
//! | lost | consequence |
//! |---|---|
//! | the incoming node, before step 4 | the move is abandoned; the member stays. The write that the node missed is acknowledged once that is settled, since a former writer may have stored step 4 in part |
//! | the member's node, before step 4 | the member is stale, and the incoming node replaces it: it is synchronized from the other members, where it lacks anything |
//! | the incoming node, after step 4 | it is the member: the usual loss |
//! | the former node, after step 4 | a write that it missed is acknowledged once step 4 is settled |
//! | the writer, before step 4 is stored | the next writer continues, or abandons the move if it does not reach the node |
//! | the writer, while step 4 is stored | the next writer finds it or not. As the former writer has not closed the drive, no write is acknowledged before all readers know the next map |
