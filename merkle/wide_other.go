//go:build !amd64 || purego

package merkle

var wide, wider = false, false

func leaves16(*[wideLanes]cv, *[GroupSize]byte, int, int64) { panic("merkle: no wide code here") }

func parents16(*[wideLanes]cv, *[2 * wideLanes]cv, int) { panic("merkle: no wide code here") }
