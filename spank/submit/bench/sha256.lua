-- sha256.lua measures the cost of computing a script's SHA-256 inside slurmctld, compared with job_submit.lua's
-- polynomial hash.
--
--   lua sha256.lua <tables, native or polynomial> <bytes> <rounds>
--
-- "tables" works in every version of Lua. It stores words as doubles, and computes "xor", "and" and "majority" from
-- sums of bits that are spread out to base 4. "native" needs the operators of Lua 5.3 and later. The program prints the
-- digest of a string of <bytes> times "x", and a round's median time in microseconds.

local floor, byte, char, rep = math.floor, string.byte, string.char, string.rep

-- primes returns, for each of the first n primes, the first 32 bits of the fractional part of its square root (root 2)
-- or cube root (root 3).
local function primes(n, root)
  local found, p = {}, 2
  while #found < n do
    local prime = true
    for d = 2, floor(math.sqrt(p)) do if p % d == 0 then prime = false break end end
    if prime then
      local r = p ^ (1 / root)
      found[#found + 1] = floor((r - floor(r)) * 4294967296)
    end
    p = p + 1
  end
  return found
end
local K, H = primes(64, 3), primes(8, 2)

local function padded(text)
  local zeros = (55 - #text) % 64
  local bits, tail = #text * 8, {}
  for i = 8, 1, -1 do
    tail[i] = char(bits % 256)
    bits = floor(bits / 256)
  end
  return text .. "\128" .. rep("\0", zeros) .. table.concat(tail)
end

local function hex(h)
  local out = {}
  for i = 1, 8 do out[i] = string.format("%08x", h[i]) end
  return table.concat(out)
end

local hashes = {}

function hashes.tables()
  local SPREAD, PARITY, CARRY = {}, {}, {}   -- map 16 bits to base 4, and 8 digits of base 4 to their low and their high bits
  for i = 0, 65535 do
    local s, x, d = 0, i, 1
    while x > 0 do
      if x % 2 == 1 then s = s + d end
      x, d = floor(x / 2), d * 4
    end
    SPREAD[i] = s
    local low, high = 0, 0
    x, d = i, 1
    while x > 0 do
      local digit = x % 4
      if digit % 2 == 1 then low = low + d end
      if digit > 1 then high = high + d end
      x, d = (x - digit) / 4, d * 2
    end
    PARITY[i], CARRY[i] = low, high
  end
  local function xor3(a, b, c)
    local al, bl, cl = a % 65536, b % 65536, c % 65536
    local l = SPREAD[al] + SPREAD[bl] + SPREAD[cl]
    local h = SPREAD[(a - al) / 65536] + SPREAD[(b - bl) / 65536] + SPREAD[(c - cl) / 65536]
    local ll, hl = l % 65536, h % 65536
    return PARITY[ll] + PARITY[(l - ll) / 65536] * 256 + PARITY[hl] * 65536 + PARITY[(h - hl) / 65536] * 16777216
  end
  return function(text)
    text = padded(text)
    local h1, h2, h3, h4, h5, h6, h7, h8 = H[1], H[2], H[3], H[4], H[5], H[6], H[7], H[8]
    local w = {}
    for at = 1, #text, 64 do
      for i = 1, 16 do
        local b1, b2, b3, b4 = byte(text, at + 4 * i - 4, at + 4 * i - 1)
        w[i] = ((b1 * 256 + b2) * 256 + b3) * 256 + b4
      end
      for i = 17, 64 do
        local x, y = w[i - 15], w[i - 2]
        local x7, x18, x3, y17, y19, y10 = x % 128, x % 262144, x % 8, y % 131072, y % 524288, y % 1024
        w[i] = (w[i - 16] + w[i - 7] +
          xor3((x - x7) / 128 + x7 * 33554432, (x - x18) / 262144 + x18 * 16384, (x - x3) / 8) +
          xor3((y - y17) / 131072 + y17 * 32768, (y - y19) / 524288 + y19 * 8192, (y - y10) / 1024)) % 4294967296
      end
      local a, b, c, d, e, f, g, h = h1, h2, h3, h4, h5, h6, h7, h8
      for i = 1, 64 do
        local r6, r11, r25 = e % 64, e % 2048, e % 33554432
        local s1 = xor3((e - r6) / 64 + r6 * 67108864, (e - r11) / 2048 + r11 * 2097152, (e - r25) / 33554432 + r25 * 128)
        local el, fl, gl = e % 65536, f % 65536, g % 65536
        local eh, fh, gh = (e - el) / 65536, (f - fl) / 65536, (g - gl) / 65536
        local l1, l2 = SPREAD[el] + SPREAD[fl], SPREAD[65535 - el] + SPREAD[gl]
        local u1, u2 = SPREAD[eh] + SPREAD[fh], SPREAD[65535 - eh] + SPREAD[gh]
        local l1l, l2l, u1l, u2l = l1 % 65536, l2 % 65536, u1 % 65536, u2 % 65536
        local ch = CARRY[l1l] + CARRY[l2l] + (CARRY[(l1 - l1l) / 65536] + CARRY[(l2 - l2l) / 65536]) * 256 +
          (CARRY[u1l] + CARRY[u2l]) * 65536 + (CARRY[(u1 - u1l) / 65536] + CARRY[(u2 - u2l) / 65536]) * 16777216
        local t1 = h + s1 + ch + K[i] + w[i]
        local r2, r13, r22 = a % 4, a % 8192, a % 4194304
        local s0 = xor3((a - r2) / 4 + r2 * 1073741824, (a - r13) / 8192 + r13 * 524288, (a - r22) / 4194304 + r22 * 1024)
        local al, bl, cl = a % 65536, b % 65536, c % 65536
        local l = SPREAD[al] + SPREAD[bl] + SPREAD[cl]
        local u = SPREAD[(a - al) / 65536] + SPREAD[(b - bl) / 65536] + SPREAD[(c - cl) / 65536]
        local ll, ul = l % 65536, u % 65536
        local maj = CARRY[ll] + CARRY[(l - ll) / 65536] * 256 + CARRY[ul] * 65536 + CARRY[(u - ul) / 65536] * 16777216
        h, g, f, e, d, c, b, a = g, f, e, (d + t1) % 4294967296, c, b, a, (t1 + s0 + maj) % 4294967296
      end
      h1, h2, h3, h4 = (h1 + a) % 4294967296, (h2 + b) % 4294967296, (h3 + c) % 4294967296, (h4 + d) % 4294967296
      h5, h6, h7, h8 = (h5 + e) % 4294967296, (h6 + f) % 4294967296, (h7 + g) % 4294967296, (h8 + h) % 4294967296
    end
    return hex({h1, h2, h3, h4, h5, h6, h7, h8})
  end
end

-- In Lua 5.1 and 5.2, the bit operators are syntax errors.
local NATIVE = [[
local K, H, padded, hex = ...
return function(text)
  text = padded(text)
  local s, w = {}, {}
  for i = 1, 8 do s[i] = H[i] end
  for at = 1, #text, 64 do
    w = {string.unpack(">I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4", text, at)}
    for i = 17, 64 do
      local x, y = w[i - 15], w[i - 2]
      w[i] = (w[i - 16] + w[i - 7] + ((x >> 7 | x << 25) ~ (x >> 18 | x << 14) ~ x >> 3 & 0xffffffff) +
        ((y >> 17 | y << 15) ~ (y >> 19 | y << 13) ~ y >> 10 & 0xffffffff)) & 0xffffffff
    end
    local a, b, c, d, e, f, g, h = s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]
    for i = 1, 64 do
      local t1 = h + (((e >> 6 | e << 26) ~ (e >> 11 | e << 21) ~ (e >> 25 | e << 7)) & 0xffffffff) + (g ~ e & (f ~ g)) + K[i] + w[i]
      local t2 = (((a >> 2 | a << 30) ~ (a >> 13 | a << 19) ~ (a >> 22 | a << 10)) & 0xffffffff) + (a & b | c & (a | b))
      h, g, f, e, d, c, b, a = g, f, e, d + t1 & 0xffffffff, c, b, a, t1 + t2 & 0xffffffff
    end
    local now = {a, b, c, d, e, f, g, h}
    for i = 1, 8 do s[i] = s[i] + now[i] & 0xffffffff end
  end
  return hex(s)
end]]

function hashes.native()
  local make = (loadstring or load)(NATIVE)
  return make and make(K, H, padded, hex)
end

function hashes.polynomial()
  return function(text)
    local a, b = 0, 0
    for i = 1, #text do
      local c = byte(text, i)
      a = (a * 1000003 + c) % 4294967291
      b = (b * 786433 + c) % 4294967291
    end
    return string.format("%08x%08x", a, b)
  end
end

local hash = hashes[arg[1]]()
if not hash then print("not in " .. _VERSION) os.exit(0) end
local text, times = rep("x", tonumber(arg[2])), {}
print(hash(text))
for i = 1, tonumber(arg[3]) do
  local began = os.clock()
  hash(text)
  times[i] = (os.clock() - began) * 1e6
end
table.sort(times)
print(string.format("%.0f", times[math.ceil(#times / 2)]))
