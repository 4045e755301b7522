--- files: npy and IDX from Lua: round trips, and nil with the error for what files do wrong. spec/faults/files has damaged ones in depth.
local ag = require "argand"
local cases = require "support.cases"

local function with_file(content, fn)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(content)
  file:close()
  local ok, err = pcall(fn, path)
  os.remove(path)
  if not ok then error(err, 0) end
end

describe("npy", function()
  it("comes back as it was", function()
    local check = cases.begin()
    for _, dtype in ipairs {"f64", "f32", "f16", "i64", "i32", "i16", "i8", "u8", "bool"} do
      for name, make in pairs {
        matrix = function() return ag.tensor({{1, 0, 1}, {0, 1, 1}}, {dtype = dtype}) end, scalar = function() return ag.ones({}, {dtype = dtype}) end,
        empty = function() return ag.zeros(2, 0, 3, {dtype = dtype}) end, transposed = function() return ag.tensor({{1, 0, 1}, {0, 1, 1}}, {dtype = dtype}):t() end,
        broadcast = function() return ag.ones(3, {dtype = dtype}):expand(4, 3) end,
      } do
        check(dtype .. " " .. name, function()
          with_file("", function(path)
            local t = make()
            assert.is_true(ag.save_npy(path, t))
            local back = assert(ag.load_npy(path))
            assert.equal(dtype, back.dtype)
            assert.same(t:shape(), back:shape())
            assert.is_true(t:equal(back))
          end)
        end)
      end
    end
    check.done()
  end)

  it("gives nil and the error", function()
    local check = cases.begin()
    local function refused(code, t, err)
      assert.is_nil(t)
      assert.equal(code, err.code)
      assert.is_truthy(tostring(err):find("^[^\n]+$"))
    end
    check("no such file", function() refused("file", ag.load_npy("/nonexistent/x.npy")) end)
    check("a folder", function() refused("file", ag.load_npy("/tmp")) end)
    check("no place to write", function() refused("file", ag.save_npy("/nonexistent/x.npy", ag.ones(1))) end)
    for name, content in pairs {empty = "", garbage = ("x"):rep(500), truncated = "\147NUMPY\1\0", gzip = "\31\139\8\0"} do
      check(name, function() with_file(content, function(path) refused("format", ag.load_npy(path)) end) end)
    end
    check.done()
  end)
end)

describe("idx", function()
  it("is read, plain or gzip", function()
    with_file("\0\0\8\2\0\0\0\2\0\0\0\3\1\2\3\4\5\6", function(path)
      local t = assert(ag.load_idx(path))
      assert.same({{1, 2, 3}, {4, 5, 6}}, t:tolist())
      assert.equal("u8", t.dtype)
    end)
    with_file("\0\0\12\1\0\0\0\2\0\0\1\0\255\255\255\254", function(path) assert.same({256, -2}, assert(ag.load_idx(path)):tolist()) end)
  end)

  it("gives nil and the error for a lying, cut or overlong file", function()
    local check = cases.begin()
    for name, content in pairs {
      empty = "", magic = "\1\0\8\1\0\0\0\1x", type = "\0\0\7\1\0\0\0\1x", dims = "\0\0\8\9" .. ("\0"):rep(64), ["no dims"] = "\0\0\8\0", header = "\0\0\8\2\0\0\0\1",
      short = "\0\0\8\1\0\0\0\9abc", long = "\0\0\8\1\0\0\0\2abc", huge = "\0\0\14\4" .. ("\255"):rep(16) .. "abc", ["cut gzip"] = "\31\139\8\0\0\0\0\0\0\3\1",
    } do
      check(name, function()
        with_file(content, function(path)
          local t, err = ag.load_idx(path)
          assert.is_nil(t)
          assert(err.code == "format", tostring(err))
        end)
      end)
    end
    check.done()
  end)
end)
