package slurm

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestSame changes one field of a record at a time, and checks that Same notices every change except that of
// Node.Asked.
func TestSame(t *testing.T) {
	checkSame(t, func(a, b *Node) bool { return a.Same(b) }, "Asked", "Comment")
	checkSame(t, func(a, b *Job) bool { return a.Same(b) })
	checkSame(t, func(a, b *Waiting) bool {
		a.Job, b.Job = cmp.Or(a.Job, &Job{}), cmp.Or(b.Job, &Job{})
		return a.Same(b)
	})
	checkSame(t, func(a, b *Constraint) bool { return a.same(b) })
}

func checkSame[T any](t *testing.T, same func(a, b *T) bool, ignored ...string) {
	t.Helper()
	var zero T
	if !same(&zero, new(T)) {
		t.Errorf("%T: two empty records differ", zero)
	}
	for i := range reflect.TypeFor[T]().NumField() {
		name := reflect.TypeFor[T]().Field(i).Name
		for _, path := range leaves(reflect.TypeFor[T]().Field(i).Type) {
			var a, b T
			path(reflect.ValueOf(&a).Elem().Field(i))
			if same(&a, &b) != slices.Contains(ignored, name) {
				t.Errorf("%T: a change of %s is not noticed", zero, name)
			}
		}
	}
}

// leaves returns one function for each field of the type, which sets the field to a value other than zero.
func leaves(of reflect.Type) (all []func(reflect.Value)) {
	if of == reflect.TypeFor[time.Time]() {
		return []func(reflect.Value){func(v reflect.Value) { v.Set(reflect.ValueOf(time.Unix(1, 0))) }}
	}
	switch of.Kind() {
	case reflect.Struct:
		for i := range of.NumField() {
			for _, set := range leaves(of.Field(i).Type) {
				all = append(all, func(v reflect.Value) { set(v.Field(i)) })
			}
		}
	case reflect.Pointer:
		for _, set := range leaves(of.Elem()) {
			all = append(all, func(v reflect.Value) {
				v.Set(reflect.New(of.Elem()))
				set(v.Elem())
			})
		}
	case reflect.Slice:
		all = append(all, func(v reflect.Value) { v.Set(reflect.MakeSlice(of, 1, 1)) })
	case reflect.Map:
		all = append(all, func(v reflect.Value) {
			v.Set(reflect.MakeMap(of))
			v.SetMapIndex(reflect.ValueOf("n"), reflect.Zero(of.Elem()))
		})
	case reflect.String:
		all = append(all, func(v reflect.Value) { v.SetString("x") })
	case reflect.Bool:
		all = append(all, func(v reflect.Value) { v.SetBool(true) })
	case reflect.Int, reflect.Int64:
		all = append(all, func(v reflect.Value) { v.SetInt(1) })
	case reflect.Uint32, reflect.Uint64:
		all = append(all, func(v reflect.Value) { v.SetUint(1) })
	default:
		panic("no change for " + of.String())
	}
	return all
}
