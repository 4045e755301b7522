--- samples: sample data per op (spec/ops/<op>.lua) turned into calls.
--
-- A sample file returns a table:
--   calls    list of calls: {x = {3, 4}, dim = 1}. A tensor parameter is given by its shape, or by {shape = {3, 4}, <fields of
--            its generator>}; a list parameter by a list of these; attributes by value.
--   gen      generator by parameter name, with the fields
--              range = {low, high}   of floats; avoid = points that they keep 0.05 away from; distinct: well separated
--              ints = {low, high}    of int dtypes; nonzero: without 0
--              below = n             positions 1 .. n, of i64; unique: none twice; negative: half of them from the end
--              special = false       no NaN nor Inf; extreme: where NaN goes, very large and small values go, too
--              layout = false        always contiguous; dtype = always that one
--            `gradient` in a call: false when it has none by design, "agree" when differences cannot tell it
--   empty, scalar, special   calls on empty and on 0-d tensors, and those that get NaN and Inf; false: it has none
--   large    one call of about 100,000 elements, an odd number; false: none
--   layouts  false: contiguous inputs only (for ops that refuse others)
--   expect   list of {args, result, ..., dtype = , dtypes = {name = }}: results by hand; args hold nested lists in place of
--            shapes, in the op's widest dtype unless told otherwise
--   grads    names of the parameters to differentiate by (all float ones unless given); false: none
--   smooth   the second derivative is checked, too
--   tied     false: no gradients along broadcast dims, where equal values make a kink
--   ulps, magnitude, large_magnitude   tolerance (support/approx); the last for the large call
--   mutates  names of the parameters that the call changes
--   arbitrary   the result's content is not defined, its shape and dtype are
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"

local M = {}

local is_tensor_word = {any = true, num = true, float = true, bool = true, bits = true, index = true, ["any[]"] = true}
local takes_dtype = {any = true, num = true, float = true, bits = true, ["any[]"] = true}

-- ---- numbers ----

-- Own generator, so that data are the same everywhere: a 32-bit linear congruence, its upper bits used.
local function random(seed)
  local state = (seed * 2654435761) % 4294967296
  return function()
    state = (state * 1664525 + 1013904223) % 4294967296
    return math.floor(state / 256) / 16777216
  end
end

local function hash(text)
  local h = 7
  for i = 1, #text do h = (h * 31 + text:byte(i)) % 1000003 end
  return h
end

local function permutation(count, next_number)
  local list = {}
  for i = 1, count do list[i] = i end
  for i = count, 2, -1 do
    local k = 1 + math.floor(next_number() * i)
    list[i], list[k] = list[k], list[i]
  end
  return list
end

local int_lows = {u8 = 0, i8 = -128}

local function positions(gen, count, next_number)
  local list = gen.unique and permutation(math.max(count, gen.below), next_number)
  local values = {}
  for i = 1, count do
    local position = list and list[i] or 1 + math.floor(next_number() * gen.below)
    values[i] = gen.negative and i % 2 == 0 and position - gen.below - 1 or position
  end
  return values
end

local function keep_away(value, points)
  for _, point in ipairs(points) do
    if math.abs(value - point) < 0.05 then value = point + (value < point and -0.05 or 0.05) end
  end
  return value
end

local function floats(gen, count, next_number)
  local low, high = unpack(gen.range or {-2, 2})
  local order = gen.distinct and permutation(count, next_number)
  local values = {}
  for i = 1, count do
    local fraction = order and (order[i] - 0.5) / count or next_number()
    values[i] = keep_away(low + (high - low) * fraction, gen.avoid or {})
  end
  return values
end

local function ints(gen, dtype, count, next_number)
  local low, high = unpack(gen.ints or {-5, 5})
  low = math.max(low, int_lows[dtype] or low)
  local values = {}
  for i = 1, count do
    local value = low + math.floor(next_number() * (high - low + 1))
    values[i] = value == 0 and gen.nonzero and 1 or value
  end
  return values
end

local specials = {0 / 0, math.huge, -math.huge, 0, -0.0, 1}

-- Elementwise ops also meet values where range reductions, overflow and subnormals matter.
local extremes = {
  0 / 0, math.huge, -math.huge, 0, -0.0, 1, -1, 1e4, -1e4, 1e-6, -1e-6, 3e7, -3e7, 1e30, -1e30, 1e-41, 88.75, -88.75, 710, -104,
  0.5, -0.5,
}

local function fill_values(gen, dtype, count, seed, with_specials)
  local next_number, kind = random(seed), approx.kinds[dtype]
  if gen.below then return positions(gen, count, next_number) end
  if kind == "bool" then
    local values = {}
    for i = 1, count do values[i] = next_number() < 0.5 and 1 or 0 end
    return values
  elseif kind == "int" then
    return ints(gen, dtype, count, next_number)
  end
  local values = floats(gen, count, next_number)
  if with_specials and gen.special ~= false then
    local list, every = specials, 2
    if gen.extreme then list, every = extremes, 1 end
    for i = 1, count, every do values[i] = list[1 + (seed + (i - 1) / every) % #list] end
  end
  return values
end

local function count_of(shape)
  local count = 1
  for _, n in ipairs(shape) do count = count * n end
  return count
end

-- Of larger tensors one block is made here and then repeated; its odd size meets no width of a row or a vector.
local block = 4093

local function make(shape, gen, dtype, seed, with_specials)
  local count = count_of(shape)
  local own = gen.unique and count or math.min(count, block)
  local values = fill_values(gen, dtype, own, seed, with_specials)
  local t = ag.empty({own}, {dtype = "f64"})
  if own > 0 then
    local p = t:data()
    for i = 1, own do p[i - 1] = values[i] end
  end
  if own < count then t = t:tile(math.ceil(count / own)):narrow(1, 1, count) end
  return t:reshape(shape):to(dtype):contiguous()
end

-- ---- layouts ----

-- Each makes the base's shape from the wanted one, and the input from the base.
local layouts = {
  contiguous = {function(shape) return shape end, function(base) return base end},
  transposed = {
    function(shape)
      local base = {unpack(shape)}
      local n = #base
      if n == 0 then return {3} end
      if n == 1 then return {2 * base[1] + 1} end
      base[n], base[n - 1] = base[n - 1], base[n]
      return base
    end,
    function(base, shape)
      if #shape == 0 then return base:select(1, 2) end
      if #shape == 1 then return base:slice(1, 2, nil, 2) end
      return base:transpose()
    end,
  },
  broadcast = {
    function(shape)
      local base = {unpack(shape)}
      for i = 1, #base do
        if base[i] > 1 then
          base[i] = 1
          return base
        end
      end
      return base
    end,
    function(base, shape) return base:expand(shape) end,
  },
}
M.layouts = {"contiguous", "transposed", "broadcast", "empty", "0-d", "special"}

-- ---- one call ----

local function merged(gen, spec)
  if not spec.shape then return gen or {}, spec end
  local result = {}
  for k, v in pairs(gen or {}) do result[k] = v end
  for k, v in pairs(spec) do result[k] = v end
  return result, spec.shape
end

local function make_input(sample, name, word, spec, options, seed)
  local gen, shape = merged(sample.gen[name], spec)
  local dtype = gen.dtype or (word == "bool" and "bool") or (gen.below and "i64") or options.dtype
  local layout = options.layout
  if not layouts[layout] or gen.unique or gen.layout == false then layout = "contiguous" end
  local base_shape, view = layouts[layout][1](shape), layouts[layout][2]
  local base = make(base_shape, gen, dtype, seed, options.layout == "special")
  if options.device ~= "cpu" then base = base:to(options.device) end
  return base, function(t) return view(t, shape) end, dtype
end

--- Builds the arguments of a call. Returns args for core.call, and inputs: a list of {name, base, view, dtype}, where
-- args[name] is view(base). options: {dtype, device, layout}.
function M.build(op, call, options)
  local sample, info = M.load(op), core.op_info(op)
  local args, inputs = {}, {}
  for _, param in ipairs(info.params) do
    local spec, name = call[param.name], param.name
    if spec ~= nil and not is_tensor_word[param.type] then
      args[name] = spec
    elseif type(spec) == "number" then
      args[name] = spec
    elseif spec ~= nil then
      local list = param.type == "any[]" and spec or {spec}
      local built = {}
      for i, item in ipairs(list) do
        local base, view, dtype = make_input(sample, name, param.type, item, options, hash(name) + i)
        inputs[#inputs + 1] = {name = name, at = i, base = base, view = view, dtype = dtype, is_list = param.type == "any[]"}
        built[i] = view(base)
      end
      args[name] = param.type == "any[]" and built or built[1]
    end
  end
  if M.has_dtype_attr(info) and args.dtype == nil then args.dtype = options.dtype end
  for _, param in ipairs(info.params) do
    if param.type == "device" then args.device = options.device end
  end
  return args, inputs
end

--- Creation ops are told their dtype and device in attributes.
function M.has_dtype_attr(info)
  local has_tensor = false
  for _, param in ipairs(info.params) do has_tensor = has_tensor or takes_dtype[param.type] end
  if has_tensor then return false end
  for _, param in ipairs(info.params) do if param.type == "dtype" then return true end end
  return false
end

--- Calls the op on the arguments of M.build; a fixed seed makes random ops repeat. Returns the list of results.
function M.run(op, args, seed)
  ag.manual_seed(seed or 5)
  return {core.call(op, args)}
end

--- The calls of a sample for a layout.
function M.calls(sample, layout)
  if layout == "empty" then return sample.empty or {} end
  if layout == "0-d" then return sample.scalar or {} end
  if layout == "special" then return sample.special or {} end
  if layout ~= "contiguous" and sample.layouts == false then return {} end
  return sample.calls
end

local loaded = {}

--- The sample of an op; nil when it has no file.
function M.load(op)
  if loaded[op] == nil then
    local found, sample = pcall(require, "ops." .. op)
    if not found then
      if not tostring(sample):find("not found", 1, true) then error(sample, 0) end
      return nil
    end
    sample.gen = sample.gen or {}
    if sample.special == nil then sample.special = {sample.calls[1]} end
    loaded[op] = sample
  end
  return loaded[op]
end

-- ---- elementwise ops: only what is particular to one of them stands in its file ----

local function copied(sample)
  local result = {}
  for k, v in pairs(sample) do result[k] = v end
  return result
end

-- Attribute variants: the calls once without attributes, and the first call once with each of sample.attrs.
local function with_attrs(calls, attrs)
  for _, attr in ipairs(attrs or {}) do
    local call = copied(calls[1])
    for k, v in pairs(attr) do call[k] = v end
    calls[#calls + 1] = call
  end
  return calls
end

--- Sample of a one-input elementwise op: its generator's fields, and attrs, expect, smooth, ... as in any sample.
function M.unary(fields)
  local sample = copied(fields)
  sample.gen = {x = fields}
  sample.calls = with_attrs({{x = {5, 3}}, {x = {37}}, {x = {2, 3, 4}}, {x = {1, 2, 1, 2, 1, 2, 1, 3}}}, fields.attrs)
  sample.empty, sample.scalar = {{x = {0, 3}}}, {{x = {}}}
  sample.special = fields.special or {{x = {37}}, {x = {shape = {53}, extreme = true}}}
  sample.large = {x = {100003}}
  return sample
end

--- Sample of a two-input elementwise op; fields of the generators in fields.a and fields.b.
function M.binary(fields)
  local sample = copied(fields)
  sample.gen = {a = fields.a or {}, b = fields.b or {}}
  sample.calls = with_attrs({
    {a = {4, 3}, b = {4, 3}}, {a = {37}, b = {37}}, {a = {3, 1}, b = {5}}, {a = {2, 3, 4}, b = {3, 1}}, {a = {2, 3}, b = {}},
    {a = {2, 1, 3, 1, 2}, b = {3, 1, 2, 1}}, {a = {1, 2, 1, 1, 2, 1, 1, 3}, b = {2, 1, 1, 2, 1, 1, 2, 1}},
  }, fields.attrs)
  sample.empty = {{a = {0, 3}, b = {3}}, {a = {2, 0}, b = {1, 1}}}
  sample.scalar = {{a = {}, b = {}}}
  sample.special = {
    {a = {12, 1}, b = {12}}, {a = {37}, b = {37}}, {a = {shape = {23, 1}, extreme = true}, b = {shape = {23}, extreme = true}},
  }
  sample.large = {a = {100003}, b = {100003}}
  return sample
end

return M
