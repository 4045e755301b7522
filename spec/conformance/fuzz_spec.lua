-- Calls drawn at random, with fixed seeds: every op on inputs of random shape, dtype, layout and values, with attributes that
-- may be wrong, on cpu and on reference. Both give the same results and gradients, or errors with the same code.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"
local samples = require "support.samples"

local random = math.random
local function pick(list) return list[random(#list)] end
local function chance(p) return random() < p end

local function numel(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local specials = {0 / 0, math.huge, -math.huge, 0, -0.0, 1, -1, 0.5, 2, 100, -100}

-- One number for a tensor of the kind; positions are 1 .. below, or negative, or (seldom) out of range.
local function number(kind, gen, below, is_special)
  if below then
    if is_special and chance(0.02) then return pick {0, below + 1, -below - 1} end
    local position = below > 0 and random(below) or 1
    return chance(0.2) and position - below - 1 or position
  elseif kind == "bool" then
    return random(0, 1)
  elseif kind == "int" then
    return is_special and chance(0.05) and pick {2 ^ 31, 2 ^ 40, 127, -128, 255} or random(-5, 5)
  elseif is_special and chance(0.2) then
    return pick(specials)
  end
  local low, high = unpack(gen.range or {-2, 2})
  return low + (high - low) * random()
end

local function fill(shape, dtype, gen, below, is_special)
  local t = ag.empty(shape, {dtype = "f64"})
  local p = t:data()
  for i = 0, numel(shape) - 1 do p[i] = number(approx.kinds[dtype], gen, below, is_special) end
  return t:to(dtype)
end

-- How a view of `shape` lies in its base: the order of dims, and for each dim its step, offset and whether it is expanded.
local function draw_layout(shape, is_plain)
  local layout = {shape = shape, order = {}, dims = {}, base = {}}
  for d = 1, #shape do layout.order[d] = d end
  for d = is_plain and 1 or #shape, 2, -1 do
    local other = random(d)
    layout.order[d], layout.order[other] = layout.order[other], layout.order[d]
  end
  for d, size in ipairs(shape) do
    local dim = {step = 1, offset = 0}
    if not is_plain and size > 0 and chance(0.25) then dim = {step = random(3), offset = random(0, 2)} end
    if not is_plain and chance(0.12) then dim.is_expanded, size = true, 1 end
    layout.dims[d] = dim
    layout.base[layout.order[d]] = size == 0 and 0 or (size - 1) * dim.step + 1 + dim.offset
  end
  return layout
end

local function view(base, layout)
  local t = base:permute(layout.order)
  for d, dim in ipairs(layout.dims) do
    if dim.offset > 0 or dim.step > 1 then t = t:slice(d, dim.offset + 1, nil, dim.step) end
  end
  return t:expand(layout.shape)
end

local tensor_words = {any = true, num = true, float = true, bool = true, bits = true, index = true, ["any[]"] = true}

-- Another value for an attribute by its type, legal or not.
local drawn = {
  dim = function() return random(-4, 5) end, int = function() return random(-3, 9) end,
  dims = function() return {random(-4, 4), random(-4, 4)} end, flag = function() return chance(0.5) end,
  number = function() return pick {0, 1, -1, 0.5, 2, math.huge, 0 / 0, 1e30, -2.5} end,
  dtype = function() return pick(approx.dtypes) end,
  ints = function(value)
    local list = type(value) == "table" and {unpack(value)} or {value}
    list[random(#list + 1)] = random(-2, 6)
    return list
  end,
}
drawn.position, drawn.shape = drawn.dim, drawn.ints

-- Sizes of a sample's call are exchanged, equal ones for equal ones, so that what has to fit fits still.
local function draw_sizes()
  local map, is_kept = {}, chance(0.4)
  return function(size)
    if is_kept or size < 0 then return size end
    map[size] = map[size] or chance(0.3) and size or pick {0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 17}
    return map[size]
  end
end

local function draw_shape(shape, new_size, lead, is_odd)
  local result = {unpack(lead)}
  for _, size in ipairs(shape) do result[#result + 1] = new_size(size) end
  if is_odd and #result > 0 then result[random(#result)] = random(0, 3) end
  while #result > 8 or numel(result) > 2000 do table.remove(result, 1) end
  return result
end

local function draw_tensor(sample, param, item, draw)
  local gen = {}
  for k, v in pairs(sample.gen[param.name] or {}) do gen[k] = v end
  if item.shape then for k, v in pairs(item) do gen[k] = v end end
  local below = gen.below and draw.new_size(gen.below) or param.type == "index" and 3 or nil
  local dtype = param.type == "bool" and "bool" or below and pick {"i64", "i32", "i8", "u8"} or gen.dtype or draw.dtype
  if chance(0.08) then dtype = pick(approx.dtypes) end
  draw.eps = math.max(draw.eps, approx.eps[dtype] or 0)
  local shape = draw_shape(item.shape or item, draw.new_size, draw.lead, draw.is_odd and chance(0.5))
  local layout = draw_layout(shape, chance(0.4))
  return {dtype = dtype, layout = layout, base = fill(layout.base, dtype, gen, below, draw.is_special)}
end

-- A call that `run` can make on any device; tensors in args are as draw_tensor gives them, eps is that of their coarsest dtype.
local function draw_call(op)
  local sample, info = samples.load(op), core.op_info(op)
  local call = pick(samples.calls(sample, pick {"contiguous", "contiguous", "empty", "0-d"})) or sample.calls[1]
  local args = {}
  local lead = chance(0.12) and {random(0, 2), random(2)} or {}
  local draw = {new_size = draw_sizes(), lead = lead, dtype = pick(approx.dtypes), is_odd = chance(0.12), eps = 0}
  draw.is_special = sample.special and chance(0.3)
  for _, param in ipairs(info.params) do
    local value = call[param.name]
    if tensor_words[param.type] and type(value) == "table" then
      local list, is_list = {}, param.type == "any[]"
      for i, item in ipairs(is_list and value or {value}) do list[i] = draw_tensor(sample, param, item, draw) end
      value = is_list and list or list[1]
    elseif param.type == "shape" and type(value) == "table" then
      value = draw_shape(value, draw.new_size, {}, false)
    end
    if drawn[param.type] and chance(0.15) then value = drawn[param.type](value) end
    args[param.name] = value
  end
  if samples.has_dtype_attr(info) then args.dtype = args.dtype or draw.dtype end
  local mode = pick {"pure", "pure", "gradient", "checkpointed", "in place"}
  return {op = op, info = info, args = args, mode = mode, eps = draw.eps}
end

local function place(item, device, bases, tracked)
  local base = item.base:to(device):clone()
  base.requires_grad = tracked and approx.kinds[item.dtype] == "float"
  bases[#bases + 1] = base
  return view(base, item.layout)
end

local function arguments(call, device, bases, tracked)
  local args = {}
  for _, param in ipairs(call.info.params) do
    local value = call.args[param.name]
    if type(value) == "table" and value.base then
      value = place(value, device, bases, tracked)
    elseif param.type == "any[]" then
      local list = {}
      for i, item in ipairs(value) do list[i] = place(item, device, bases, tracked) end
      value = list
    end
    args[param.name] = param.type == "device" and device or value
  end
  return args
end

-- A sum of all results with a weight for each element, so that no gradient is the same everywhere.
local function weighted_sum(results, device)
  local total
  for _, t in ipairs(results) do
    if t.requires_grad then
      local weights = ag.arange(1, t:numel() + 1):mul(0.37):sin():reshape(t:shape()):to(t.dtype):to(device)
      local sum = (t * weights):sum()
      total = total and total + sum or sum
    end
  end
  return total
end

-- Results of the call on a device, then what it changed, or the gradients.
local function run(call, device)
  local bases, tracked = {}, call.mode == "gradient" or call.mode == "checkpointed"
  ag.manual_seed(3)
  local first = call.info.params[1]
  local method = call.mode == "in place" and first and core.methods[call.op .. "_"]
  if method then
    local args = arguments(call, device, bases, false)
    local target = args[first.name]
    args[first.name] = nil
    return {method(target, next(args) and args or nil), unpack(bases)}
  end
  local function forward() return core.call(call.op, arguments(call, device, bases, tracked)) end
  local is_balanced = call.mode == "checkpointed" and device ~= "reference"
  local results = {ag.autodiff({checkpointing = is_balanced and "balanced" or "none"}, forward)}
  local loss = tracked and weighted_sum(results, device)
  if loss then
    loss:backward()
    for _, base in ipairs(bases) do results[#results + 1] = base.grad end
  end
  return results
end

local function magnitude(results)
  local largest = 4
  for _, t in ipairs(results) do
    if t:numel() > 0 then
      local sizes = t:detach():to("cpu"):to("f64"):abs()
      largest = math.max(largest, ag.where(sizes:isfinite(), sizes, 0):amax():item())
    end
  end
  return largest
end

-- Sums of squares overflow here, and terms cancel: values_spec compares these on tame values.
local is_wild = {layer_norm = true, group_norm = true, batch_norm = true, rms_norm = true, norm = true, prod = true}

-- Errors are objects of the library; anything else is a mistake here or there.
local function code_of(ok, err)
  if ok then return "no error" end
  return type(err) == "table" and err.code or error(err, 0)
end

local function check_call(op, seed)
  math.randomseed(seed)
  local call = draw_call(op)
  local ok, actual = pcall(run, call, "cpu")
  local is_reference_ok, expected = pcall(run, call, "reference")
  if not ok or not is_reference_ok then
    local code, wanted = code_of(ok, actual), code_of(is_reference_ok, expected)
    assert(code == wanted, ("%s on cpu (%s), %s on reference (%s)"):format(code, actual, wanted, expected))
    return
  end
  assert(#actual == #expected, "as many results and gradients")
  if samples.load(op).arbitrary or is_wild[op] then return end
  local options = {magnitude = magnitude(expected)}
  for i, t in ipairs(expected) do
    options.tolerance = 256 * math.max(call.eps, approx.eps[t.dtype] or 0)
    approx.check(actual[i], t, options)
  end
end

describe("random calls", function()
  it("agree with the reference device in results, gradients and errors", function()
    local check, left_out = cases.begin(), {sgd_step = true, adam_step = true, to_device = true}
    for at, op in ipairs(core.op_names(true)) do
      local count = samples.load(op) and not left_out[op] and 60 or 0
      for seed = at * 1000 + 1, at * 1000 + count do check(("%s, seed %d"):format(op, seed), check_call, op, seed) end
    end
    check.done()
  end)
end)
