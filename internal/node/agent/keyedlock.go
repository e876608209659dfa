package agent

import "sync"

// keyedLock ensures that at most one call per job runs at a time.
type keyedLock struct {
	mu   sync.Mutex
	held map[uint32]*keyed
}

type keyed struct {
	mu    sync.Mutex
	users int
}

// lock locks a key and returns the function that unlocks it.
func (k *keyedLock) lock(key uint32) (unlock func()) {
	k.mu.Lock()
	l := k.use(key)
	k.mu.Unlock()
	l.mu.Lock()
	return func() { k.unlock(key, l) }
}

// tryLock is like lock, but returns nil if the key is already locked.
func (k *keyedLock) tryLock(key uint32) (unlock func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[key] != nil {
		return nil
	}
	l := k.use(key)
	l.mu.Lock()
	return func() { k.unlock(key, l) }
}

// use returns a key's lock and counts the caller among its users. The caller holds k.mu.
func (k *keyedLock) use(key uint32) *keyed {
	if k.held == nil {
		k.held = map[uint32]*keyed{}
	}
	l := k.held[key]
	if l == nil {
		l = &keyed{}
		k.held[key] = l
	}
	l.users++
	return l
}

func (k *keyedLock) unlock(key uint32, l *keyed) {
	l.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.held, key)
	}
}
