--- guard_spec: what may take part in collectives: the answers beforehand agree with one another and with what the call does, for
--- every kind of tensor on every device; a reason tells what the device, the dtype and this build cannot.
local ag = require "argand"
local cases = require "support.cases"
local dist = require "argand.dist"
local kinds = require "argand.dist.kinds"

setup(function() dist.init() end)
teardown(function() dist.close() end)

local DTYPES = {
  f64 = "float", f32 = "float", f16 = "float", bf16 = "float", i64 = "int", i32 = "int", i16 = "int", i8 = "int", u8 = "int",
  bool = "bool",
}

-- ddp's functions may refuse what a collective takes: only tracked leaves of float dtype are parameters.
local has_ddp = pcall(require, "argand.dist.ddp")

-- One cell: a tensor of this dtype on this device, tracked or not.
local function tensor_of(dtype, device, tracking)
  local t = ag.ones({3}, {dtype = dtype, device = device})
  if tracking == "untracked" then return t end
  t.requires_grad = true
  return tracking == "leaf" and t or t * 2
end

local function trackings_of(kind) return kind == "float" and {"leaf", "non-leaf", "untracked"} or {"untracked"} end

local calls = {
  all_reduce = function(t, op) return dist.all_reduce(t, {op = op}) end,
  reduce = function(t, op) return dist.reduce(t, {op = op}) end,
  reduce_scatter = function(t, op) return dist.reduce_scatter(t, {op = op}) end,
  broadcast = function(t) return dist.broadcast(t) end,
  all_gather = function(t) return dist.all_gather(t) end,
  gather = function(t) return dist.gather(t) end,
  scatter = function(t) return dist.scatter(t) end,
  all_to_all = function(t) return dist.all_to_all(t) end,
}
local OPS = {all_reduce = true, reduce = true, reduce_scatter = true}

-- What is right, written down by hand: the one truth that all answers are held to.
local function expected_of(kind, op, dtype, device)
  if device == "reference" then return false, "device" end
  if not OPS[kind] then return true end
  local is_logical = op == "and" or op == "or"
  if is_logical ~= (dtype == "bool") then return false, "dtype" end
  if op == "mean" and DTYPES[dtype] ~= "float" then return false, "dtype" end
  return true
end

local function in_autodiff(enabled, fn, ...) return (enabled and ag.enable_grad or ag.no_grad)(fn, ...) end

local function check_cell(kind, op, dtype, device, tracking, enabled)
  local t = tensor_of(dtype, device, tracking)
  local expected, code = expected_of(kind, op, dtype, device)
  in_autodiff(enabled, function()
    local by_tensor, reason = dist.supports(kind, t, op)
    local by_name = dist.supports(kind, {dtype = dtype, device = device}, op)
    assert.equal(expected, by_tensor)
    assert.equal(expected, by_name)
    if (op == nil or op == "sum") and not ag[kind] then -- gather and scatter are names of ops, too
      local word, why = t:supports(kind)
      assert.equal(expected and "native" or false, word)
      assert.equal(reason, why)
      assert.equal(word, (ag.supports {op = kind, dtype = dtype, device = device}))
    end
    local ok, result = pcall(calls[kind], t, op)
    assert.equal(expected, ok)
    if ok then
      assert.equal(dtype, result.dtype)
      assert.same(t:tolist(), result:tolist())
      assert.equal(tracking ~= "untracked" and enabled, result.requires_grad)
    else
      assert.equal(code, result.code)
      assert.equal(reason, result.message)
    end
  end)
end

describe("the answer beforehand", function()
  it("is what the call does, in every cell", function()
    local check, count = cases.begin(), 0
    for _, device in ipairs {"cpu", "reference"} do
      for dtype, class in pairs(DTYPES) do
        for _, tracking in ipairs(trackings_of(class)) do
          for _, enabled in ipairs {true, false} do
            for kind in pairs(calls) do
              for _, op in ipairs(OPS[kind] and {"sum", "mean", "min", "max", "prod", "and", "or"} or {false}) do
                count = count + 1
                check(("%s %s of %s %s on %s, autodiff %s"):format(kind, op or "", tracking, dtype, device, tostring(enabled)),
                  check_cell, kind, op or nil, dtype, device, tracking, enabled)
              end
            end
          end
        end
      end
    end
    check.done()
    assert.equal(2 * 2 * (4 * 3 + 6) * (3 * 7 + 5), count)
  end)

  it("is there for every collective, by each of the ways to ask", function()
    local check = cases.begin()
    for kind in pairs(kinds) do
      check(kind, function()
        assert.is_true(dist.supports(kind, {dtype = "f32", device = "cpu"}))
        assert.equal("native", ag.ones(1):supports(kind))
        local is_supported, reason = dist.supports(kind, {device = "reference"})
        assert.is_false(is_supported)
        assert.truthy(reason:find 'reference.*t:to%("cpu"%)')
        local word, why = ag.ones({1}, {device = "reference"}):supports(kind)
        if not ag[kind] then assert.same({false, reason}, {word, why}) end -- of ops of the same name it tells of the op
      end)
    end
    check.done()
  end)

  it("keeps apart what the device, the dtype and this build cannot", function()
    local _, device = dist.supports("all_reduce", {device = "reference"})
    local _, dtype = dist.supports("all_reduce", {dtype = "bool"})
    local _, mean = dist.supports("all_reduce", {dtype = "i32"}, "mean")
    local _, unknown = dist.supports("all_sum", {})
    local _, op = dist.supports("all_reduce", {}, "median")
    assert.truthy(device:find "device reference")
    assert.truthy(dtype:find "got bool" and dtype:find "`and` or `or`")
    assert.truthy(mean:find "float dtype")
    assert.truthy(unknown:find "all_sum" and unknown:find "all_reduce")
    assert.truthy(op:find "median" and op:find "prod")
    local ok, err = pcall(ag.supports, {op = "all_reduc"})
    assert.is_false(ok)
    assert.equal("argument", err.code)
    ok, err = pcall(dist.supports, "all_reduce", {dtype = "f8"})
    assert.is_false(ok)
    assert.equal("dtype", err.code)
  end)
end)

if has_ddp and dist.check then
  describe("dist.check", function()
    -- A parameter is a tracked leaf of float dtype on a device with collectives; nothing else changes the answer.
    it("takes parameters only, whatever the context", function()
      local check = cases.begin()
      for _, device in ipairs {"cpu", "reference"} do
        for dtype, class in pairs(DTYPES) do
          for _, tracking in ipairs(trackings_of(class)) do
            for _, enabled in ipairs {true, false} do
              check(("%s %s on %s, autodiff %s"):format(tracking, dtype, device, tostring(enabled)), function()
                local t = tensor_of(dtype, device, tracking)
                local expected = class == "float" and tracking == "leaf" and device == "cpu"
                local ok = in_autodiff(enabled, dist.check, {t})
                assert.equal(expected, ok and true or false)
              end)
            end
          end
        end
      end
      check.done()
    end)
  end)
end
