// Package wake sends and accepts notifications: datagrams that ask the receiver to read the queue, and carry no other
// data. The watcher sends them to agents, and agents send them to the watcher. They may be lost.
//
// A datagram contains the sender's name, the receiver's name and a time, with an HMAC-SHA256 under the site's key. A
// receiver accepts a datagram only once, and only under the following conditions. The MAC is correct, and the datagram
// names this receiver. The time in the datagram is within 30 seconds of the receiver's clock, later than the receiver's
// start, and later than the time in the last datagram of the same sender. The datagram comes from an address of the
// sender. A captured datagram therefore has no effect after its first arrival, and a forged datagram costs the receiver
// only one computation of a MAC. If the clocks differ by more than 30 seconds, receivers reject all datagrams, and
// agents poll instead.
//
// The package also limits the reactions to datagrams: at most 20 in a burst, and then two per
// second. A pause between reactions doubles while the reactions change nothing.
//
// Files:
//
//	wake.go      Sender, Listener; why a datagram is refused; limits of reactions (burst 20, every 0.5 s) and pauses
//	datagram.go  the format of a datagram (magic, maxLength), its MAC, the accepted difference of clocks (window 30 s)
//	key.go       the key file: its owner, mode and length (minKey 32, maxKey 4096 bytes); the error texts and remedies
package wake
