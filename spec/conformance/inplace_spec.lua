-- The in-place form t:op_() and out= against the pure form of the same call, for every op that has them.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"
local samples = require "support.samples"

local dtypes = {"f64", "f32", "f16", "i32", "u8", "bool"}
-- A view cannot be written into its own input.
local views = {}
for _, op in ipairs {
  "reshape", "view", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "movedim", "expand", "narrow", "slice",
  "select", "diagonal", "unfold",
} do
  views[op] = true
end

local totals = {inplace = 0, out = 0, refused = 0}

local function same_shape(a, b)
  return table.concat(a:shape(), ",") == table.concat(b:shape(), ",")
end

local kind_rank = {bool = 0, int = 1, float = 2}

-- A result may be stored in a tensor of its own kind or a higher one.
local function holds(target, result) return kind_rank[approx.kinds[target.dtype]] >= kind_rank[approx.kinds[result.dtype]] end

local function copied(args)
  local result = {}
  for k, v in pairs(args) do result[k] = core.is_tensor(v) and v:clone() or v end
  return result
end

local function check_bits(actual, expected) approx.check(actual, expected, {tolerance = 0}) end

local function inplace(op, name, call, options)
  local pure = samples.run(op, copied((samples.build(op, call, options))))[1]
  local args = samples.build(op, call, options)
  local target, old = args[name], args[name]:clone()
  args[name] = nil
  ag.manual_seed(5)
  local version = target.version
  local ok, result = pcall(core.methods[op .. "_"], target, unpack(next(args) and {args} or {}))
  if same_shape(target, pure) and holds(target, pure) and not views[op] then
    if not ok then error(result, 0) end
    assert(rawequal(result, target), "returned another tensor")
    assert(target.version > version, "the version did not rise")
    check_bits(target, pure:to(target.dtype))
    totals.inplace = totals.inplace + 1
  else
    assert(not ok, "a result that does not fit was taken")
    assert(views[op] and result.code == "unsupported" or result.code == "shape" or result.code == "kind", tostring(result))
    check_bits(target, old)
    totals.refused = totals.refused + 1
  end
end

local function into(op, call, options)
  local pure = samples.run(op, copied((samples.build(op, call, options))))[1]
  for _, layout in ipairs {"contiguous", "transposed"} do
    local args = samples.build(op, call, options)
    local shape = pure:shape()
    local out = ag.zeros(shape, {dtype = pure.dtype, device = options.device})
    if layout == "transposed" and #shape >= 2 then
      shape[#shape], shape[#shape - 1] = shape[#shape - 1], shape[#shape]
      out = ag.zeros(shape, {dtype = pure.dtype, device = options.device}):transpose()
    end
    args.out = out
    local result = samples.run(op, args)[1]
    check_bits(out, pure)
    check_bits(result, pure)
    totals.out = totals.out + 1
  end
  local args = samples.build(op, call, options)
  args.out = ag.ones({2, 7, 1, 3}, {dtype = pure.dtype, device = options.device})
  local ok, err = pcall(samples.run, op, args)
  assert(not ok and err.code == "shape", "out= of another shape: " .. tostring(err))
  assert(args.out:eq(1):all():item(), "out= of another shape was written to")
end

describe("in place", function()
  it("every t:op_() gives what the pure call gives, or refuses and leaves t alone", function()
    local check = cases.begin()
    for _, op in ipairs(core.op_names()) do
      local sample, info = samples.load(op), core.op_info(op)
      local first = info.params[1]
      local usable = sample and core.methods[op .. "_"] and not sample.arbitrary and not sample.mutates
      for _, device in ipairs(usable and ag.devices() or {}) do
        for _, dtype in ipairs(dtypes) do
          for _, layout in ipairs {"contiguous", "transposed"} do
            for i, call in ipairs(core.supports(op, dtype, device) and samples.calls(sample, layout) or {}) do
              check(("%s_ %s %s call %d on %s"):format(op, dtype, layout, i, device), inplace, op, first.name, call,
                {dtype = dtype, device = device, layout = layout})
            end
          end
        end
      end
    end
    check.done()
  end)

  it("every op with one result writes it to out=", function()
    local check = cases.begin()
    for _, op in ipairs(core.op_names()) do
      local sample, info = samples.load(op), core.op_info(op)
      local usable = sample and info.outputs == 1 and not sample.arbitrary and not sample.mutates
      for _, device in ipairs(usable and ag.devices() or {}) do
        for _, dtype in ipairs {"f32", "i32"} do
          if core.supports(op, dtype, device) then
            check(("%s %s on %s"):format(op, dtype, device), into, op, sample.calls[1],
              {dtype = dtype, device = device, layout = "contiguous"})
          end
        end
      end
    end
    check.done()
    print(("conformance, in place: %d calls, %d by out=, %d refused"):format(totals.inplace, totals.out, totals.refused))
  end)

  it("on both operands at once reads before it writes", function()
    local x = ag.tensor {{1, 2}, {3, 4}}
    x:add_(x:transpose())
    assert.are.same({{2, 5}, {5, 8}}, x:tolist())
    local y = ag.tensor {1, 2, 3, 4}
    y:narrow(1, 2, 3):copy_(y:narrow(1, 1, 3))
    assert.are.same({1, 1, 2, 3}, y:tolist())
    y:mul_(y)
    assert.are.same({1, 1, 4, 9}, y:tolist())
  end)
end)
