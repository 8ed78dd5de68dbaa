; direct.tiled|dense.inner=1,dense.m=2,dense.m.block=2,dense.n=2,dense.n.block=2,dense.outer=1,dense.unroll=2
; a, w, bias, y
define void @kernel_r0(ptr %args, i64 %thread, i64 %threads) #0 {
entry:
  %v1 = getelementptr ptr, ptr %args, i64 0
  %base2 = load ptr, ptr %v1, align 8
  %v3 = getelementptr ptr, ptr %args, i64 1
  %base4 = load ptr, ptr %v3, align 8
  %v5 = getelementptr ptr, ptr %args, i64 2
  %base6 = load ptr, ptr %v5, align 8
  %v7 = getelementptr ptr, ptr %args, i64 3
  %base8 = load ptr, ptr %v7, align 8
  %v9 = mul i64 %thread, 1
  %v10 = udiv i64 %v9, %threads
  %v11 = add i64 %thread, 1
  %v12 = mul i64 %v11, 1
  %v13 = udiv i64 %v12, %threads
  %v15 = icmp slt i64 %v10, %v13
  br i1 %v15, label %L14, label %L14.exit
L14:
  %_p.L14 = phi i64 [ %v10, %entry ], [ %v76, %L18.exit ]
  %v16 = urem i64 %_p.L14, 1
  %v17 = urem i64 %_p.L14, 1
  br label %L18
L18:
  %m.1.L18 = phi i64 [ 0, %L14 ], [ %v74, %L19.exit ]
  %h24 = mul nsw i64 %m.1.L18, 12
  %h25 = getelementptr float, ptr %base2, i64 %h24
  %h64 = mul nsw i64 %m.1.L18, 32
  %h65 = getelementptr float, ptr %base8, i64 %h64
  br label %L19
L19:
  %k.0.L19 = phi i64 [ 0, %L18 ], [ %v60, %L19 ]
  %a20 = phi <8 x float> [ splat (float 0x0000000000000000), %L18 ], [ %v50, %L19 ]
  %a21 = phi <8 x float> [ splat (float 0x0000000000000000), %L18 ], [ %v53, %L19 ]
  %a22 = phi <8 x float> [ splat (float 0x0000000000000000), %L18 ], [ %v58, %L19 ]
  %a23 = phi <8 x float> [ splat (float 0x0000000000000000), %L18 ], [ %v59, %L19 ]
  %h26 = mul nsw i64 %k.0.L19, 2
  %h27 = getelementptr float, ptr %h25, i64 %h26
  %h31 = mul nsw i64 %k.0.L19, 32
  %h32 = getelementptr float, ptr %base4, i64 %h31
  %v28 = load float, ptr %h27, align 4
  %v29 = insertelement <8 x float> poison, float %v28, i64 0
  %v30 = shufflevector <8 x float> %v29, <8 x float> poison, <8 x i32> zeroinitializer
  %v33 = load <8 x float>, ptr %h32, align 4
  %v34 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v30, <8 x float> %v33, <8 x float> %a20)
  %p35 = getelementptr float, ptr %h32, i64 8
  %v36 = load <8 x float>, ptr %p35, align 4
  %v37 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v30, <8 x float> %v36, <8 x float> %a21)
  %p38 = getelementptr float, ptr %h27, i64 6
  %v39 = load float, ptr %p38, align 4
  %v40 = insertelement <8 x float> poison, float %v39, i64 0
  %v41 = shufflevector <8 x float> %v40, <8 x float> poison, <8 x i32> zeroinitializer
  %v42 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v41, <8 x float> %v33, <8 x float> %a22)
  %v43 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v41, <8 x float> %v36, <8 x float> %a23)
  %p44 = getelementptr float, ptr %h27, i64 1
  %v45 = load float, ptr %p44, align 4
  %v46 = insertelement <8 x float> poison, float %v45, i64 0
  %v47 = shufflevector <8 x float> %v46, <8 x float> poison, <8 x i32> zeroinitializer
  %p48 = getelementptr float, ptr %h32, i64 16
  %v49 = load <8 x float>, ptr %p48, align 4
  %v50 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v47, <8 x float> %v49, <8 x float> %v34)
  %p51 = getelementptr float, ptr %h32, i64 24
  %v52 = load <8 x float>, ptr %p51, align 4
  %v53 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v47, <8 x float> %v52, <8 x float> %v37)
  %p54 = getelementptr float, ptr %h27, i64 7
  %v55 = load float, ptr %p54, align 4
  %v56 = insertelement <8 x float> poison, float %v55, i64 0
  %v57 = shufflevector <8 x float> %v56, <8 x float> poison, <8 x i32> zeroinitializer
  %v58 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v57, <8 x float> %v49, <8 x float> %v42)
  %v59 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v57, <8 x float> %v52, <8 x float> %v43)
  %v60 = add nuw nsw i64 %k.0.L19, 1
  %v61 = icmp slt i64 %v60, 3
  br i1 %v61, label %L19, label %L19.exit
L19.exit:
  %v62 = load <8 x float>, ptr %base6, align 4
  %v63 = fadd <8 x float> %v50, %v62
  store <8 x float> %v63, ptr %h65, align 4
  %p66 = getelementptr float, ptr %base6, i64 8
  %v67 = load <8 x float>, ptr %p66, align 4
  %v68 = fadd <8 x float> %v53, %v67
  %p69 = getelementptr float, ptr %h65, i64 8
  store <8 x float> %v68, ptr %p69, align 4
  %v70 = fadd <8 x float> %v58, %v62
  %p71 = getelementptr float, ptr %h65, i64 16
  store <8 x float> %v70, ptr %p71, align 4
  %v72 = fadd <8 x float> %v59, %v67
  %p73 = getelementptr float, ptr %h65, i64 24
  store <8 x float> %v72, ptr %p73, align 4
  %v74 = add nuw nsw i64 %m.1.L18, 1
  %v75 = icmp slt i64 %v74, 2
  br i1 %v75, label %L18, label %L18.exit
L18.exit:
  %v76 = add nuw nsw i64 %_p.L14, 1
  %v77 = icmp slt i64 %v76, %v13
  br i1 %v77, label %L14, label %L14.exit
L14.exit:
  ret void
}
