package leafproof

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"leafproof/manifest"
)

// NewKeyOptions say what a new key may say.
type NewKeyOptions struct {
	// Roles are the roles in which it speaks; none: manifest. RoleLog stands alone.
	Roles []string
	// Name is its name in the policy, and of its file in keys/; "" chooses one.
	// For a log it is the origin.
	Name string
	// Tenants and Sources are patterns; none: all of them. A log has neither.
	Tenants, Sources []string
	// NotBefore and NotAfter are its time window; zero: no bound.
	NotBefore, NotAfter time.Time
}

// NewKey is a key that was made.
type NewKey struct {
	Roles       []string     `json:"roles"`
	Name        string       `json:"name"`
	Fingerprint string       `json:"fingerprint"`
	File        string       `json:"file"` // in the store's folder
	Policy      PolicyChange `json:"policy"`
	// PolicyKey is the file of a second key that was made to sign versions of the
	// policy, in a store whose policy nobody signed until now; "" is none.
	PolicyKey string `json:"policy_key"`
}

// NewKey makes a key in the store's folder and admits it in the policy's next
// version. From when that version is in force the store signs with it, as it does
// with the newest key that may speak.
func (s *Store) NewKey(ctx context.Context, o NewKeyOptions) (NewKey, error) {
	if len(o.Roles) == 0 {
		o.Roles = []string{manifest.RoleManifest}
	}
	k := NewKey{Roles: o.Roles}
	log := slices.Contains(o.Roles, manifest.RoleLog)
	if log && (len(o.Roles) > 1 || len(o.Tenants) > 0 || len(o.Sources) > 0 || !o.NotBefore.IsZero() || !o.NotAfter.IsZero()) {
		return k, fail(CodeSelectorInvalid, FixCall, "role", "the key of a log signs nothing else, and has neither tenants, sources nor a time window")
	}
	var made []string
	change, err := s.changePolicy(ctx, func(e *policyEditor) (changes []manifest.Change, err error) {
		wanted := []NewKeyOptions{o}
		if !e.trust.policy.HasSigners() && !slices.Contains(o.Roles, manifest.RolePolicy) {
			wanted = []NewKeyOptions{{Roles: []string{manifest.RolePolicy}}, o}
		}
		for i, o := range wanted {
			p, err := e.pick(o)
			if err != nil {
				return nil, err
			}
			made = append(made, p.file)
			change, fingerprint, err := e.admit(p, o)
			if err != nil {
				return nil, err
			}
			changes = append(changes, change)
			if i == len(wanted)-1 {
				k.Name, k.File, k.Fingerprint = p.name, p.file, fingerprint
			} else {
				k.PolicyKey = p.file
			}
		}
		e.trust.held, err = heldKeys(e.dir) // a new key may sign the version that admits it
		return changes, err
	}, func(e *policyEditor) error { // nobody knows them
		var err error
		for _, file := range made {
			err = errors.Join(err, e.forget(file))
		}
		return err
	})
	k.Policy = change
	return k, err
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// picked are the names of a key that is to be made.
type picked struct{ name, file string }

// pick chooses the names of a key: those that Init gives, then with a number.
func (e *policyEditor) pick(o NewKeyOptions) (p picked, err error) {
	log := o.Roles[0] == manifest.RoleLog
	if o.Name != "" && !log {
		if err := checkKeyName(o.Name); err != nil {
			return p, err
		}
		return picked{o.Name, keysDir + "/" + o.Name}, e.vacant(keysDir + "/" + o.Name)
	}
	for n := 1; ; n++ {
		suffix := ""
		if n > 1 {
			suffix = fmt.Sprintf("-%d", n)
		}
		p = picked{"store-" + o.Roles[0] + suffix, keysDir + "/" + o.Roles[0] + suffix}
		switch {
		case log && o.Name != "":
			p.name = o.Name
		case log:
			p.name = e.origin()
		case o.Roles[0] == manifest.RoleManifest:
			p.name = "store" + suffix
		}
		err := e.vacant(p.file)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return p, err
		}
		taken := slices.ContainsFunc(e.trust.policy.Keys(), func(k manifest.Key) bool { return k.Name == p.name })
		if err == nil && !taken {
			return p, nil
		}
	}
}

// origin is the name of the store's log: the one in its policy, or Init's.
func (e *policyEditor) origin() string {
	if logs := e.trust.policy.Logs(); len(logs) > 0 {
		return logs[len(logs)-1].Name
	}
	f, err := readFormat(e.dir)
	if err != nil {
		return ""
	}
	return logOrigin(f.StoreID)
}

// vacant is fs.ErrExist for a name that is taken in keys/.
func (e *policyEditor) vacant(file string) error {
	for _, name := range []string{file, file + publicSuffix} {
		switch _, err := e.root.Stat(name); {
		case err == nil:
			return fmt.Errorf("%s: %w", name, fs.ErrExist)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// checkKeyName refuses names that no key's file may have.
func checkKeyName(name string) error {
	if err := manifest.CheckName(name); err != nil {
		return err
	}
	if secretFile(keysDir+"/"+name) || strings.HasSuffix(name, publicSuffix) || strings.Contains(name, ":") {
		return fmt.Errorf("%w: the file keys/%s cannot hold a key", manifest.ErrName, name)
	}
	return nil
}

// admit makes the key's files, and the change that admits it.
func (e *policyEditor) admit(p picked, o NewKeyOptions) (change manifest.Change, fingerprint string, err error) {
	key, err := makeKey(e.root, strings.TrimPrefix(p.file, keysDir+"/"))
	if err != nil {
		return nil, "", err
	}
	if o.Roles[0] == manifest.RoleLog {
		log, err := manifest.LogKey(p.name, key.Public)
		return manifest.AddLog(log), key.Public.Fingerprint(), err
	}
	return manifest.AddKey(manifest.Key{
		Name: p.name, Public: key.Public, Roles: o.Roles, Tenants: o.Tenants, Sources: o.Sources,
		NotBefore: o.NotBefore, NotAfter: o.NotAfter,
	}), key.Public.Fingerprint(), nil
}

// forget removes the files of a key that no policy names.
func (e *policyEditor) forget(file string) error {
	return errors.Join(ignore(e.root.Remove(file+publicSuffix), fs.ErrNotExist), ignore(e.root.Remove(file), fs.ErrNotExist))
}

// KeyInfo is a key of a store's policy in one role, or a file that the policy does
// not know.
type KeyInfo struct {
	Role        string `json:"role"` // "-": none, the policy does not know the key
	Fingerprint string `json:"fingerprint"`
	State       string `json:"state"` // see [manifest.Policy.StateOf]
	Name        string `json:"name"`  // in the policy; of a log its origin
	// Held is where the private half is: a file in the store's folder,
	// "ssh-agent", "given" by the program, or "" where it is not at hand.
	Held string `json:"held"`

	public manifest.PublicKey
}

// Keys lists the keys of the policy in force, one entry for each of their roles, in
// the order of its text, and then the key files that it does not know.
func (s *Store) Keys() ([]KeyInfo, error) {
	t, err := s.trusted()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	list := []KeyInfo{}
	enter := func(role, name string, public manifest.PublicKey) {
		list = append(list, KeyInfo{role, public.Fingerprint(), t.policy.StateOf(public, now), name, "", public})
	}
	for _, k := range t.policy.Keys() {
		for _, role := range k.Roles {
			enter(role, k.Name, k.Public)
		}
	}
	for _, l := range t.policy.Logs() {
		enter(manifest.RoleLog, l.Name, l.Public)
	}
	held, err := heldKeys(s.dir) // also those that wait for a version of the policy
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if h.key != nil && !t.policy.Knows(h.key.Public) {
			enter("-", "-", h.key.Public)
		}
	}
	s.findHeld(list, held)
	return list, nil
}

// findHeld says where the private halves are.
func (s *Store) findHeld(list []KeyInfo, held []heldKey) {
	inAgent := map[manifest.PublicKey]bool{}
	if s.agent != nil {
		all := make([]manifest.PublicKey, len(list))
		for i, k := range list {
			all[i] = k.public
		}
		found, _ := s.agent.Held(all...) // one that does not answer has none
		for _, k := range found {
			inAgent[k.Public] = true
		}
	}
	for i := range list {
		k := &list[i]
		j := slices.IndexFunc(held, func(h heldKey) bool { return h.key != nil && h.key.Public == k.public })
		switch given := s.given[k.Role]; {
		case given != nil:
			if public, err := manifest.PublicKeyOf(given); err == nil && public == k.public {
				k.Held = "given"
			}
		case j >= 0:
			k.Held = held[j].file
		case inAgent[k.public]:
			k.Held = "ssh-agent"
		}
	}
}

// PublicKey is the public half of the key that speaks in a role: the newest that the
// policy lets speak now, whether or not its private half is at hand.
func (s *Store) PublicKey(role string) (manifest.PublicKey, error) {
	t, err := s.trusted()
	if err != nil {
		return manifest.PublicKey{}, err
	}
	may, reason := t.speakers(role, nil, time.Now())
	if len(may) == 0 {
		return manifest.PublicKey{}, t.noKey(role, reason)
	}
	return may[0], nil
}
