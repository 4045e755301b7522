-- Dtypes of results: the promotion table over all pairs, plain numbers on either side, and ops that have rules of their own.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"

-- The common dtype of two. Floats before ints before bool, the wider within a kind; in two pairs neither holds the other.
local rank = {bool = 0, u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, bf16 = 6, f16 = 7, f32 = 8, f64 = 9}

local function promoted(a, b)
  if (a == "f16" and b == "bf16") or (a == "bf16" and b == "f16") then return "f32" end
  if (a == "i8" and b == "u8") or (a == "u8" and b == "i8") then return "i16" end
  return rank[a] >= rank[b] and a or b
end

local function kind_is_float(dtype) return approx.kinds[dtype] == "float" end

local function tensor(dtype, device) return ag.tensor({1, 2, 3}, {dtype = dtype}):to(device) end

local function expect_dtype(wanted, fn, ...)
  local result = fn(...)
  assert(result.dtype == wanted, ("got %s, expected %s"):format(result.dtype, wanted))
  return result
end

-- What is joined is first converted, so the result must be that of the converted operands.
local function check_pair(op, a, b, device, wanted, compute)
  local x, y = tensor(a, device), tensor(b, device)
  local result = expect_dtype(wanted, core[op], x, y)
  approx.check(result, core[op](x:to(compute), y:to(compute)))
end

describe("promotion", function()
  it("of two tensors follows one table", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      for _, a in ipairs(approx.dtypes) do
        for _, b in ipairs(approx.dtypes) do
          local common = promoted(a, b)
          local name = ("%s and %s on %s"):format(a, b, device)
          for _, op in ipairs {"eq", "lt", "logical_and"} do
            check(op .. " of " .. name, check_pair, op, a, b, device, "bool", common)
          end
          if common ~= "bool" then
            for _, op in ipairs {"add", "sub", "mul", "maximum", "remainder", "pow"} do
              check(op .. " of " .. name, check_pair, op, a, b, device, common, common)
            end
          end
          local float = kind_is_float(common) and common or "f32"
          check("div of " .. name, check_pair, "div", a, b, device, float, float)
          check("hypot of " .. name, check_pair, "hypot", a, b, device, float, float)
          if not kind_is_float(common) then
            check("bitwise_or of " .. name, check_pair, "bitwise_or", a, b, device, common, common)
          end
          local condition = ag.tensor({true, false, true}):to(device)
          check("where of " .. name, expect_dtype, common, ag.where, condition, tensor(a, device), tensor(b, device))
          check("cat of " .. name, expect_dtype, common, ag.cat, {tensor(a, device), tensor(b, device)})
          if common ~= "bool" then
            check("matmul of " .. name, expect_dtype, common, ag.matmul, tensor(a, device), tensor(b, device))
          end
        end
      end
    end
    check.done()
  end)

  it("with a plain number keeps the tensor's dtype unless the number's kind is higher", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      for _, dtype in ipairs(approx.dtypes) do
        local t = tensor(dtype, device)
        local with_int = dtype == "bool" and "i64" or dtype
        local with_float = kind_is_float(dtype) and dtype or "f32"
        for _, op in ipairs {"add", "sub", "mul", "maximum"} do
          check(("%s of %s and 2 on %s"):format(op, dtype, device), expect_dtype, with_int, core[op], t, 2)
          check(("%s of 2 and %s on %s"):format(op, dtype, device), expect_dtype, with_int, core[op], 2, t)
          check(("%s of %s and 0.5 on %s"):format(op, dtype, device), expect_dtype, with_float, core[op], t, 0.5)
          check(("%s of 0.5 and %s on %s"):format(op, dtype, device), expect_dtype, with_float, core[op], 0.5, t)
        end
        check(("%s / 2 on %s"):format(dtype, device), expect_dtype, with_float, core.div, t, 2)
        check(("%s > 0.5 on %s"):format(dtype, device), expect_dtype, "bool", core.gt, t, 0.5)
        check(("where of %s and 0.5 on %s"):format(dtype, device), expect_dtype, with_float, core.where, t:ne(0), t, 0.5)
      end
    end
    check.done()
  end)

  it("gives the value of the operands, the number on either side", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      local x = ag.tensor({1, 2, 4}, {dtype = "f64"}):to(device)
      local function check_values(result, expected) approx.check(result:to("cpu"), ag.tensor(expected, {dtype = "f64"})) end
      check("x - 1", check_values, x - 1, {0, 1, 3})
      check("1 - x", check_values, 1 - x, {0, -1, -3})
      check("x / 2", check_values, x / 2, {0.5, 1, 2})
      check("2 / x", check_values, 2 / x, {2, 1, 0.5})
      check("x ^ 2", check_values, x ^ 2, {1, 4, 16})
      check("2 ^ x", check_values, 2 ^ x, {2, 4, 16})
      check("x % 3", check_values, x % 3, {1, 2, 1})
      check("7 % x", check_values, 7 % x, {0, 1, 3})
      check("-x", check_values, -x, {-1, -2, -4})
      check("i32 times 0.5", check_values, (x:to("i32") * 0.5):to("f64"), {0.5, 1, 2})
    end
    check.done()
  end)

  it("of ints and bools in reductions and float functions", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      for _, dtype in ipairs(approx.dtypes) do
        local t, float = tensor(dtype, device), kind_is_float(dtype) and dtype or "f32"
        local total = kind_is_float(dtype) and dtype or "i64"
        for _, op in ipairs {"sum", "prod"} do check(op .. " " .. dtype, expect_dtype, total, core[op], t) end
        for _, op in ipairs {"cumsum", "cumprod"} do check(op .. " " .. dtype, expect_dtype, total, core[op], t, 1) end
        for _, op in ipairs {"exp", "sigmoid", "mean", "var", "logsumexp", "norm", "softmax"} do
          check(op .. " " .. dtype, expect_dtype, float, core[op], t)
        end
        check("any " .. dtype, expect_dtype, "bool", core.any, t)
        check("isnan " .. dtype, expect_dtype, "bool", core.isnan, t)
      end
    end
    check.done()
  end)

  it("does not reach gradients: each has the dtype of its input", function()
    local check = cases.begin()
    local floats = {"f64", "f32", "f16", "bf16"}
    local calls = {
      add = ag.add, mul = ag.mul, div = ag.div, maximum = ag.maximum, pow = ag.pow, hypot = ag.hypot, dot = ag.dot,
      outer = ag.outer,
      where = function(a, b) return ag.where(a:detach():gt(1.5), a, b) end,
      cat = function(a, b) return ag.cat {a, b} end, stack = function(a, b) return ag.stack {a, b} end,
      linear = function(a, b) return ag.linear(a, b:reshape(1, 3)) end, mse_loss = ag.mse_loss,
      layer_norm = function(a, b) return ag.layer_norm(a, {3}, b) end,
      addmm = function(a, b) return ag.addmm(a, b:reshape(3, 1), b:reshape(1, 3)) end,
    }
    for op, fn in pairs(calls) do
      for _, device in ipairs(ag.devices()) do
        for _, one in ipairs(floats) do
          for _, two in ipairs(floats) do
            check(("%s of %s and %s on %s"):format(op, one, two, device), function()
              local a, b = tensor(one, device), tensor(two, device)
              a.requires_grad, b.requires_grad = true, true
              local grads = ag.grad(fn(a, b):sum(), {a, b})
              assert(grads[1].dtype == one, "first: " .. grads[1].dtype)
              assert(grads[2].dtype == two, "second: " .. grads[2].dtype)
            end)
          end
        end
      end
    end
    check.done()
  end)
end)
